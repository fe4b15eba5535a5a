# SPDX-License-Identifier: Apache-2.0
$(call gbench,shmctl_bench,$(wildcard bench/shmctl/*.cc),lib/libshmctl.a)
