# SPDX-License-Identifier: Apache-2.0
# The agent's loop in real time, on a driver as slow as the hardware's.
$(call program,bin/bench/scale,bench/sched/scale.cc bench/sched/slow_gpu.cc bench/run_file.cc,lib/libsched.a lib/libsim.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
