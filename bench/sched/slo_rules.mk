# SPDX-License-Identifier: Apache-2.0
# Deterministic, no GPU: the same table on every machine.
$(call program,bin/bench/slo-rules,bench/sched/slo_rules.cc bench/run_file.cc,lib/libsched.a lib/libshmctl.a)
