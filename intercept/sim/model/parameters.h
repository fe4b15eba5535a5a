// SPDX-License-Identifier: Apache-2.0
// The numbers of the simulated GPU, and where each one is from: an H200 with driver 580.159.04,
// measured 2026-11-20 with two endless kernels and a short periodic one side by side. They are
// causes (what one switch costs), not results; tests/intercept/sim/calibration_test.cc derives the
// measured tables of shares, totals and latencies from them.
//
// A worked example, two endless kernels with 2,048 us slices. One turn is
//     restore 34 | slice 2,048, of which the first 2 without progress | save 110 | switch 80
//   = 2,272 us, of which 2,046 are progress. 2,046 / 2,272 of the 57,389 steps per ms that a kernel
// makes alone are 51,680; measured: 51,532. With 100 us slices 98 of 324 us are progress: 17,358
// steps (measured 17,417), so the collapse is nothing but the price of a switch. With 1 us slices a
// turn ends before the first progress: the livelock, and why such a process yields to all others.
#pragma once

#include <cstdint>
#include <string>

#include "shmctl/base/clock.h"

namespace gpushare::sim {

struct SwitchCosts {
  // Nobody is on the engine: from one context's end record to the next one's start record. Read off
  // the log of two endless kernels (each 48.2 % resident, 80 us between).
  Nanos change{80'000};
  // Still resident, blocks stopped: storing a running kernel's state. Residence in the same log is
  // 2,192 us for a slice of 2,048, so save + restore = 144. A 100 us kernel takes 175 to 202 us
  // more beside a best-effort endless kernel than alone; it waits for save + change, so save is
  // about 110.
  Nanos save{110'000};
  // Resident, not yet running: loading that state back. The rest of the 144.
  Nanos restore{34'000};
  // From the start of the slice timer to the first progress. Slices up to this make no progress
  // while another context waits (measured: 1 us and 0 us). 2 us fits 17,417 steps at 100 us slices;
  // nothing was measured between 1 and 100 us.
  Nanos ramp{2'000};
};

// Copy engines: no measurement of their switching yet. Taken as free, since a copy has no state on
// the SMs to store.
inline constexpr SwitchCosts kCopySwitchCosts{Nanos{0}, Nanos{0}, Nanos{0}, Nanos{0}};

// Clients of one MPS server share a context, so their kernels run at the same time.
struct MpsCosts {
  // A kernel that finds its queue empty while another client's kernel runs starts this much later:
  // 141 us for a kernel that takes 14 alone.
  Nanos launch{127'000};
  // Speed of each while kernels of several clients run: 96 % on disjoint SMs.
  double speed = 0.96;
};

// How long the driver's controls take; what they do takes effect when they return. Medians for 1
// channel (521 / 224 us), 8 of one group (559 / 254) and 20 of four groups (790 / 355) give base,
// channel and group. A call takes at most 64 channels.
struct ControlCosts {
  Nanos freeze_call{460'600}, freeze_channel{5'400}, freeze_group{55'000};
  Nanos thaw_call{203'300}, thaw_channel{4'300}, thaw_group{16'400};
  Nanos set_slice{80'000};  // 220-440 us for 4 groups
  Nanos get_slice{2'900};
  Nanos read_log{12'000};
  uint32_t channels_per_call = 64;
};

struct Parameters {
  SwitchCosts graphics;
  SwitchCosts copy = kCopySwitchCosts;
  MpsCosts mps;
  ControlCosts control;
  Micros graphics_slice{2048};  // what the CUDA driver sets, and the driver's default
  Micros copy_slice{1024};
  double host_copy_bytes_per_ns = 55.2;      // PCIe, each way
  double device_copy_bytes_per_ns = 2000.0;  // within the GPU; assumed, half the memory's 4.8 TB/s
};

struct GpuModel {
  std::string name = "Simulated H200";
  uint32_t sm_count = 132;
  uint64_t memory_bytes = uint64_t{143'771} << 20;  // as an H200 reports it
};

}  // namespace gpushare::sim
