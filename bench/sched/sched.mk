# SPDX-License-Identifier: Apache-2.0
$(call gbench,policy_bench,bench/sched/policy_bench.cc $(wildcard bench/sched/replay/*.cc),lib/libsched.a lib/libshmctl.a)
