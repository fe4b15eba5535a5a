# SPDX-License-Identifier: Apache-2.0
$(call gtest,sched_test,$(filter-out %/system_test.cc,$(wildcard tests/sched/*_test.cc)),lib/libsched.a lib/libsim.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
