# SPDX-License-Identifier: Apache-2.0
# A CUDA program like those of tests/workloads, so that it goes where they go; its tests run it on the
# stand-in, and tests/gpu/conformance_gpu_test.cc on a real GPU.
conformance_sources := $(filter-out %_test.cc,$(wildcard tests/conformance/*.cc)) tests/workloads/common/flags.cc tests/workloads/common/gpu_session.cc
$(call program,bin/workloads/conformance,$(conformance_sources),$(libcuda_stub) lib/libshmctl.a)
$(call gtest,conformance_test,tests/conformance/conformance_test.cc tests/intercept/shim/shim_rig.cc,lib/libsim.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
$(O)/bin/tests/conformance_test: | $(addprefix $(O)/,$(shim_library) $(libcuda_standin) bin/gpushare-sim bin/workloads/conformance)
