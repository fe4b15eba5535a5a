# SPDX-License-Identifier: Apache-2.0
# The scenarios of the whole system on a GPU; to try them, --sim takes the simulated one.
$(call program,bin/bench/gpu-scenarios,$(wildcard bench/gpu/*.cc bench/gpu/scenarios/*.cc) bench/run_file.cc tests/workloads/common/output.cc,lib/libtools.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
