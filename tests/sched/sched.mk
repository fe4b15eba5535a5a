# SPDX-License-Identifier: Apache-2.0
# The parts of the agent and of the supervisor with threads of their own, and who had the GPUs before.
threads_of_agent := $(wildcard tests/sched/daemon/gpus/*_test.cc) $(addprefix tests/sched/,enforce/driver_line_test.cc enforce/recoveries_test.cc daemon/undoing_test.cc daemon/instance_lock_test.cc)
# Long runs in virtual time, which show whom starts and caps hold up and what exchanges and tides cost.
figures := $(addprefix tests/sched/,step/starts_test.cc account/lone_caps_test.cc spatial/exchange_test.cc slo/tide_test.cc)
$(call gtest,figures_test,$(figures),lib/libsched.a lib/libsim.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
$(call gtest,sched_test,$(filter-out $(figures) tests/sched/system/% tests/sched/kills/% tests/sched/orders/% tests/sched/gangs/% %/tpot_test.cc $(threads_of_agent) %/lifeline_test.cc,$(call below,tests/sched,*_test.cc)) tests/intercept/process_stop_test.cc,lib/libsched.a lib/libsim.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS) $(SQLITE_LIBS))
# The policies that order jobs, and the replay with which they are judged.
$(call gtest,orders_test,$(wildcard tests/sched/orders/*_test.cc) tests/tools/support/run_tool.cc $(wildcard bench/sched/replay/*.cc),lib/libsched.a lib/libsim.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
$(O)/bin/tests/orders_test: | $(O)/bin/bench/order-replay
# Tokens before prompts, in whole runs in virtual time.
$(call gtest,tpot_test,tests/sched/policies/tpot_test.cc,lib/libsched.a lib/libsim.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
# Jobs on several GPUs, which have their time on all of them at once, in virtual time.
$(call gtest,gangs_test,$(wildcard tests/sched/gangs/*_test.cc),lib/libsched.a lib/libsim.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
# A rank of such a job, for tests in real time.
$(call program,bin/tests/sim_rank,tests/sched/gangs/rank.cc,lib/libsimclient.a lib/libshmctl.a)
# Agents that die at any call, at any instruction, and at any instant.
$(call gtest,kill_storm_test,$(wildcard tests/sched/kills/*.cc) tests/shmctl/plane/stepped_child.cc tests/sched/system/system_rig.cc,lib/libsched.a lib/libsim.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
$(O)/bin/tests/kill_storm_test: | $(addprefix $(O)/,bin/gpushare bin/gpushared bin/gpushare-sim bin/workloads/spin bin/workloads/steps lib/sim/libcuda.so.1 lib/libgpushare.so)
$(call gtest,lifeline_test,tests/sched/daemon/lifeline_test.cc sched/daemon/lifeline.cc,lib/libshmctl.a)
$(call gtest,driver_line_test,$(threads_of_agent) $(wildcard sched/enforce/*.cc) $(addprefix sched/daemon/,undoing.cc instance_lock.cc lock_holders.cc gpus/joining_gpus.cc gpus/predecessors.cc) $(wildcard sched/registry/registry*.cc) sched/tenants/proc_reader.cc $(wildcard sched/tenants/containers/*.cc) intercept/gpu.cc,lib/libshmctl.a)

# Starts the built programs, which lie beside it.
$(call gtest,sched_system_test,$(filter-out %/mps_system_test.cc,$(wildcard tests/sched/system/*.cc)),lib/libsimclient.a lib/libshmctl.a)
$(O)/bin/tests/sched_system_test: | $(addprefix $(O)/,bin/tests/sim_rank bin/attacks/daemonise bin/attacks/short_programs bin/gpushare bin/gpushared bin/gpushare-sim bin/workloads/spin bin/workloads/endless bin/workloads/periodic bin/workloads/churn bin/workloads/sms bin/workloads/steps lib/sim/libcuda.so.1 lib/libgpushare.so)

# Preloaded into gpushared by one of them.
all_objects += $(call objects,tests/sched/system/preloaded/no_forks.cc)
$(O)/lib/tests/libno_forks.so: $(call objects,tests/sched/system/preloaded/no_forks.cc)
	$(call say,LINK,$(@:$(O)/%=%))
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LDFLAGS) -shared -o $@ $^
$(O)/bin/tests/sched_system_test: | $(O)/lib/tests/libno_forks.so

# The same, with a stand-in for NVIDIA's MPS. shim_probe: tests/intercept/shim.
$(call gtest,sched_mps_test,tests/sched/system/mps_system_test.cc tests/sched/system/system_rig.cc,lib/libsimclient.a lib/libshmctl.a)
$(O)/bin/tests/sched_mps_test: | $(addprefix $(O)/,bin/gpushared bin/gpushare-sim bin/workloads/spin bin/workloads/endless bin/workloads/meet lib/sim/libcuda.so.1 lib/libgpushare.so lib/fake/libcuda.so.1 bin/tests/shim_probe)
