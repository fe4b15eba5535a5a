# SPDX-License-Identifier: Apache-2.0
# The tests of the kernel module's pure headers, in user space.
$(call gtest,kmod_pure_test,$(wildcard tests/kmod/*/*_test.cc) sched/tenants/rules.cc,lib/libshmctl.a)
