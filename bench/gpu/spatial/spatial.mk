# SPDX-License-Identifier: Apache-2.0
$(call program,bin/bench/gaps,bench/gpu/spatial/gaps.cc $(workload_common),$(libcuda_stub) lib/libshmctl.a)
$(call program,bin/bench/blocking,bench/gpu/spatial/blocking.cc $(workload_common),$(libcuda_stub) lib/libshmctl.a)
$(call program,bin/bench/launches,bench/gpu/spatial/launches.cc intercept/shim/driver/elf_lookup.cc $(workload_common),$(libcuda_stub) lib/libshmctl.a)
