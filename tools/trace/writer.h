// SPDX-License-Identifier: Apache-2.0
// Turns a recording of the hardware's switches into a file for Perfetto (Chrome trace JSON). Pure.
//
// In the file a GPU is a "process" and a process on it is a "thread", so that the processes that
// share a GPU stand below each other, by tenant: "GPU 0 NVIDIA H200" over "train 4711 (research)".
// Times on the GPU are slices, of one colour for each tenant where the viewer allows; freezes,
// thaws and slice changes are instants on the same track; the times for which a process was frozen
// are slices on a track below its own; shares are counters. Where jobs take turns, a track above
// all others of the GPU says whose turn it was.
//
// Times count from the first instant, which `baseTimeNanoseconds` gives in the time of the epoch,
// as torch.profiler's files do; `otherData` gives it by both clocks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/agent/protocol.h"

namespace gpushare {

struct TraceProcess {
  std::string command;
  std::string tenant;
};

struct ShareSample {
  uint64_t t_ns = 0;
  uint32_t gpu = 0;
  pid_t pid = 0;
  uint32_t permille = 0;
};

struct TraceRecording {
  uint64_t start_ns = 0;  // CLOCK_MONOTONIC, as all times here
  uint64_t end_ns = 0;
  std::vector<TraceSwitch> switches;
  std::vector<TraceAction> actions;
  std::vector<TraceTurn> turns;
  std::vector<ShareSample> shares;
  std::map<pid_t, TraceProcess> processes;
  std::map<uint32_t, std::string> gpus;  // names
  uint64_t lost = 0;
  int64_t epoch_ns = 0;  // CLOCK_REALTIME less CLOCK_MONOTONIC when the recording began
  // What wrote it and what it is of: "driver" and its version, and so on.
  std::map<std::string, std::string> about;
};

// One stay of a process on a GPU.
struct Residence {
  uint32_t gpu = 0;
  pid_t pid = 0;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  bool is_clipped = false;  // an end of it was not recorded; the bound is the nearest known one
  bool operator==(const Residence&) const = default;
};

// Pairs starts with ends. One context is on a GPU at a time, which bounds what was not recorded:
// a stay without its end lasts until the next record of that GPU (or `end_ns`), one without its
// start begins at the record before (or `start_ns`). Everything lies within [start_ns, end_ns];
// the result is ordered by beginning. Records may come in any order.
std::vector<Residence> pair_switches(const std::vector<TraceSwitch>& switches, uint64_t start_ns,
                                     uint64_t end_ns);

// The times for which a process was frozen, and why, ordered by process; clipped where the
// beginning or the end lies outside of the recording. What was frozen before it began, and is
// thawed in it, is frozen from `start_ns` on.
struct Frozen {
  uint32_t gpu = 0;
  pid_t pid = 0;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  std::string reason;  // of the first of several freezes at once; empty: not known
  bool operator==(const Frozen&) const = default;
};
std::vector<Frozen> frozen_times(const std::vector<TraceAction>& actions, uint64_t start_ns,
                                 uint64_t end_ns);

std::string trace_json(const TraceRecording& recording);

}  // namespace gpushare
