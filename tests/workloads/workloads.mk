# SPDX-License-Identifier: Apache-2.0
# bin/workloads/*: ordinary CUDA programs. One binary runs on the driver's libcuda.so.1 and, with
# LD_LIBRARY_PATH=build/lib/sim, on the simulated GPU.
workload_names := spin endless periodic launch copy hash order crowd churn memhog sms steps within
workload_common := $(addprefix tests/workloads/common/,busy_kernel.cc flags.cc gpu_session.cc)
workload_programs := $(foreach name,$(workload_names),$(O)/bin/workloads/$(name))
$(foreach name,$(workload_names),$(call program,bin/workloads/$(name),tests/workloads/$(name).cc $(workload_common),$(libcuda_stub) lib/libshmctl.a))

.PHONY: workloads
workloads: $(workload_programs)  ## the CUDA programs that tests and measurements run

workloads_test_sources := $(call below,tests/workloads,*_test.cc) tests/workloads/common/output.cc intercept/sim/libcuda/memory/kernels.cc intercept/sim/libcuda/memory/memory_map.cc intercept/sim/libcuda/memory/ptx_entries.cc
$(call gtest,workloads_test,$(workloads_test_sources),lib/libsim.a lib/libshmctl.a)
$(O)/bin/tests/workloads_test: | $(workload_programs) $(O)/$(libcuda_standin)
