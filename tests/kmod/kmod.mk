# SPDX-License-Identifier: Apache-2.0
# The kernel module's pure headers in user space.
$(call gtest,kmod_pure_test,$(wildcard tests/kmod/*_test.cc) sched/rules.cc,lib/libshmctl.a)
# Runs in the guest of tests/kernel, where there is a live module.
$(call program,bin/tests/kmod_device,tests/kmod/guest/device_main.cc,,-lgtest -lgtest_main)
$(call program,bin/tests/kmod_fuzz,tests/kmod/guest/fuzz_main.cc)
