# SPDX-License-Identifier: Apache-2.0
# Deterministic, no GPU: the same figures on every machine.
replay_sources := $(wildcard bench/sched/replay/*.cc)
$(call program,bin/bench/order-replay,bench/sched/order_replay.cc $(replay_sources),lib/libsched.a lib/libshmctl.a)
