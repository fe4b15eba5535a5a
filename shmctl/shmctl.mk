# SPDX-License-Identifier: Apache-2.0
$(call library,lib/libshmctl.a,$(wildcard shmctl/*.cc shmctl/base/*.cc))
