# SPDX-License-Identifier: Apache-2.0
$(call program,bin/bench/iterations,bench/gpu/orders/iterations.cc $(workload_common),$(libcuda_stub) lib/libshmctl.a)
