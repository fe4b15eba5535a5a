# SPDX-License-Identifier: Apache-2.0
$(call gtest,sched_test,$(filter-out %/system_test.cc,$(wildcard tests/sched/*_test.cc)),lib/libsched.a lib/libsim.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))

# Starts the built programs, which lie beside it.
$(call gtest,sched_system_test,tests/sched/system_test.cc tests/sched/system_rig.cc,lib/libshmctl.a)
$(O)/bin/tests/sched_system_test: | $(addprefix $(O)/,bin/gpushared bin/gpushare-sim bin/workloads/spin bin/workloads/endless bin/workloads/churn lib/sim/libcuda.so.1)
