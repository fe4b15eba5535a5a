# SPDX-License-Identifier: Apache-2.0
# Programs that try what they must not be able to do, one in each file (docs/security.md has the table of
# them): bin/attacks/NAME, ordinary programs that run on the driver's libcuda.so.1 or on the simulated
# GPU. attacks_test starts an agent and then each of them.
attack_sources := $(filter-out %_test.cc,$(call below,tests/attacks,*.cc))
attack_programs := $(foreach source,$(attack_sources),$(O)/bin/attacks/$(basename $(notdir $(source))))
$(foreach source,$(attack_sources),$(call program,bin/attacks/$(basename $(notdir $(source))),$(source) $(workload_common),$(libcuda_stub) lib/libintercept.a lib/libshmctl.a))

attack_tests := $(strip $(call below,tests/attacks,*_test.cc))
$(if $(attack_tests),$(call gtest,attacks_test,$(attack_tests) tests/sched/system/system_rig.cc tests/workloads/common/output.cc,lib/libsimclient.a lib/libshmctl.a))
$(O)/bin/tests/attacks_test: | $(attack_programs) $(workload_programs) $(addprefix $(O)/,bin/gpushare bin/gpushared bin/gpushare-sim lib/sim/libcuda.so.1 lib/libgpushare.so)
