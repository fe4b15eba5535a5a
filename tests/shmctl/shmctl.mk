# SPDX-License-Identifier: Apache-2.0
$(call gtest,shmctl_test,$(call below,tests/shmctl,*.cc),lib/libshmctl.a,$(SQLITE_LIBS))
