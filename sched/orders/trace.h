// SPDX-License-Identifier: Apache-2.0
// Traces of jobs as text: CSV with a heading, one job a line. The agent keeps the jobs that have
// finished in this form (`jobs` in gpushare.toml(5)), bench/sched/sacct_trace.py makes it of
// Slurm's, and bench/sched/order_replay.cc says what each order would have done to them.
//
//   job,submit_s,model,iterations,iteration_us,persistent_mib,ephemeral_mib,knee_permille,gpus,user
//   run-4711,0.5,resnet50,1200,110000,4008,0,1000,1,1000
//
// Columns may stand in any order. job, submit_s, iterations and iteration_us must be there; of the
// others a job has what TraceJob says where they are missing or empty. A field may be quoted as in
// RFC 4180, but not hold a line break. Lines that are empty or begin with # count for nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"

namespace gpushare {

// What there was to do, and when it was asked for.
struct TraceJob {
  std::string name{};
  std::string model{};  // what the agent would see as its command; empty: like no other
  Nanos submit{};       // from the start of the trace, or of the year 1970
  Nanos length{};       // GPU time, alone
  // Of which it is made, all of one length but for the last one, which takes the rest.
  uint64_t iterations = 1;
  uint64_t persistent_mib = 0, ephemeral_mib = 0;
  uint32_t knee_permille = 1000;   // the part of a GPU beyond which it gets no faster
  uint32_t gpus = 1;               // that it works on at once
  std::optional<uint32_t> user{};  // who ran it

  // GPU time of one iteration, at least 1 ns.
  Nanos iteration() const {
    return std::max(length / static_cast<Nanos::rep>(iterations), Nanos(1));
  }
  bool operator==(const TraceJob&) const = default;
};

// In the order of their submission; equal ones in the order of the file.
using TraceJobs = std::vector<TraceJob>;

// Sorted by submission. An error names the file, the line, the column and what is allowed: "FILE:7:
// iterations: '-3' is not allowed; allowed: 1 to 1000000000000".
Result<TraceJobs> parse_trace(std::string_view text, std::string_view file);
Result<TraceJobs> read_trace(const std::string& path);

// As parse_trace() reads it back, with all columns. What is beyond what may be read (a job that
// worked for a month without an iteration, numbers that a program made up) is brought within that:
// lengths are kept, and iterations give way.
std::string trace_text(const TraceJobs& jobs);

}  // namespace gpushare
