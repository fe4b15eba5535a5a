# SPDX-License-Identifier: Apache-2.0
# A CUDA program like those of tests/workloads, so that it goes where they go.
$(call program,bin/workloads/conformance,$(wildcard tests/conformance/*.cc) tests/workloads/flags.cc tests/workloads/gpu_session.cc,$(libcuda_stub))
