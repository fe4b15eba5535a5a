# SPDX-License-Identifier: Apache-2.0
$(call gbench,shmctl_bench,$(wildcard bench/shmctl/*.cc),lib/libshmctl.a)
$(call program,bin/bench/usage_size,bench/shmctl/usage/usage_size.cc,lib/libshmctl.a,$(SQLITE_LIBS))
