// SPDX-License-Identifier: Apache-2.0
// The numbers of the simulated GPU. All are from an H200 with driver 580.159.04, measured
// 2026-11-20 with two endless kernels and a short periodic one at the same time. They are causes,
// such as the cost of one switch; tests/intercept/sim/calibration_test.cc derives the measured
// shares, totals and latencies from them.
//
// Example: two endless kernels with slices of 2,048 us. One turn takes 34 us of restore, the slice,
// whose first 2 us make no progress, 110 us of save and 80 us of change, in all 2,272 us. 2,046 /
// 2,272 of the 57,389 steps per ms that a kernel makes alone are 51,680; 51,532 were measured. With
// slices of 100 us, 98 of 324 us are progress: 17,358 steps, and 17,417 were measured. With slices
// of 1 us a turn ends before the first progress, so that such a process yields to all others.
#pragma once

#include <cstdint>
#include <string>

#include "shmctl/base/clock.h"

namespace gpushare::sim {

struct SwitchCosts {
  // The engine has no context: from one context's end record to the next one's start record. The
  // log of two endless kernels shows it: each is resident for 48.2 % of the time, with 80 us
  // between.
  Nanos change = 80us;
  // A context is resident with its blocks stopped, while a running kernel's state is stored. The
  // same log has 2,192 us of residence for a slice of 2,048 us, so save and restore are 144 us. A
  // kernel of 100 us takes 175 to 202 us longer beside a best-effort endless kernel than alone; it
  // waits for save and change, so save is about 110 us.
  Nanos save = 110us;
  // A context is resident and its state is loaded: the rest of the 144 us.
  Nanos restore = 34us;
  // From the start of the slice timer to the first progress. Slices up to this make no progress
  // while another context waits (measured with 1 us and 0 us). 2 us fits the 17,417 steps at slices
  // of 100 us; nothing was measured between 1 and 100 us.
  Nanos ramp = 2us;
};

// The switching of copy engines was not measured. The model takes it as free, because a copy has no
// state on the SMs to store.
inline constexpr SwitchCosts kCopySwitchCosts{0ns, 0ns, 0ns, 0ns};

// Clients of one MPS server share a context, so their kernels run at the same time.
struct MpsCosts {
  // A kernel that finds its queue empty while another client's kernel runs starts this much later:
  // a kernel that takes 14 us alone took 141 us.
  Nanos launch = 127us;
  // The speed of each kernel while kernels of several clients run: 96 % on disjoint SMs.
  double speed = 0.96;
};

// How long the driver's controls take; they take effect when they return. The medians of freeze and
// thaw for 1 channel (521 and 224 us), for 8 of one group (559 and 254 us) and for 20 of four
// groups (790 and 355 us) give the costs per call, channel and group.
struct ControlCosts {
  Nanos freeze_call = 460'600ns, freeze_channel = 5'400ns, freeze_group = 55us;
  Nanos thaw_call = 203'300ns, thaw_channel = 4'300ns, thaw_group = 16'400ns;
  Nanos set_slice = 80us;  // 220 to 440 us were measured for 4 groups
  Nanos get_slice = 2'900ns;
  Nanos read_log = 12us;
  // To find the objects of a program that was there before the agent: 5 ms to 0.2 s were measured.
  Nanos attach = 100ms;
  // To take down a context, under the driver's lock. Tens of milliseconds on an H200; 0, because
  // most tests have no use for it.
  Nanos teardown{};
  // A context that a program makes holds the driver's lock so often for so long, and all other
  // controls and questions wait in line with it. Each time it does a little on the GPU, and is
  // resident there until another program has work. 0: nothing waits, questions are answered at
  // once, and a start does nothing on the GPU. On an H200 it is tens of milliseconds at a time: 48
  // programs that started took 15 s, and held an agent that asked on its event loop up for seconds
  // (bench/results/starts.jsonl).
  Nanos start = 0ns;
  uint32_t start_holds = 6;
  uint32_t channels_per_call = 64;
};

struct Parameters {
  SwitchCosts graphics;
  SwitchCosts copy = kCopySwitchCosts;
  MpsCosts mps;
  ControlCosts control;
  Micros graphics_slice = 2048us;            // what libcuda sets, which is the driver's default
  Micros copy_slice = 1024us;                // the driver's default
  double host_copy_bytes_per_ns = 55.2;      // over PCIe, in each direction
  double device_copy_bytes_per_ns = 2000.0;  // assumed: about half of the memory's 4.8 TB/s
};

struct GpuModel {
  std::string name = "Simulated H200";
  uint32_t sm_count = 132;
  uint64_t memory_bytes = uint64_t{143'771} << 20;  // as an H200 reports it
  // By how much a change of contexts takes longer than SwitchCosts says. GPUs with the very same
  // turns can stay out of step for ever: one rank of a collective is then never resident when the
  // other is, and neither gets on. The clocks of real cards drift apart.
  Nanos slower_change{};
};

}  // namespace gpushare::sim
