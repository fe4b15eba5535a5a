# SPDX-License-Identifier: Apache-2.0
# libintercept.a: what the agent links (driver, probe, simulation client).
intercept_sources := $(wildcard intercept/*.cc intercept/nvrm/*.cc)
include $(wildcard intercept/bpf/bpf.mk intercept/kmod/kmod.mk intercept/sim/sim.mk intercept/cuda/cuda.mk intercept/shim/shim.mk)
$(call library,lib/libintercept.a,$(intercept_sources))
