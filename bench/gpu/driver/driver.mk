# SPDX-License-Identifier: Apache-2.0
$(call program,bin/bench/gaps,bench/gpu/driver/gaps.cc $(workload_common),$(libcuda_stub) lib/libshmctl.a)
$(call program,bin/bench/blocking,bench/gpu/driver/blocking.cc intercept/shim/graphs/remake.cc $(workload_common),$(libcuda_stub) lib/libshmctl.a)
$(call program,bin/bench/launches,bench/gpu/driver/launches.cc intercept/shim/driver/elf_lookup.cc $(workload_common),$(libcuda_stub) lib/libshmctl.a)
$(call program,bin/bench/graphs,bench/gpu/driver/graphs.cc intercept/shim/graphs/remake.cc $(workload_common),$(libcuda_stub) lib/libshmctl.a)
$(call program,bin/bench/waits,bench/gpu/driver/waits.cc $(workload_common),$(libcuda_stub) lib/libshmctl.a)
