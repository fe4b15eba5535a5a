// SPDX-License-Identifier: Apache-2.0
// A job: what one `gpushare run` started, with its children, or any other GPU process by itself.
// JobView is what a policy sees of it, JobDecision what the policy says of it. A policy that orders
// jobs decides which of them has the turn; sched/step carries that out, at the next iteration's
// boundary where there is one. A policy that says nothing of jobs shares by slices and partitions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "shmctl/base/clock.h"
#include "shmctl/plane/layout.h"
#include "shmctl/shim/slot.h"

namespace gpushare {

// How it is known what is left of a job, from the least certain on.
enum class LeftSource : uint8_t {
  kUnknown,
  kLearnt,     // the median of finished runs of the same command line
  kSaid,       // length_us of its tenant
  kAnnounced,  // a number of iterations: of its tenant, or that the program expects
};

// One job, as it is on one GPU.
struct JobView {
  uint64_t id = 0;          // unique for the life of the agent and never used again; not 0
  std::string_view name{};  // "run-4711", as people see it; valid during the call
  uint32_t tenant = 0;      // TenantView::id
  Priority priority = Priority::kNormal;  // of its tenant, as is the weight
  double weight = 100;                    // > 0
  Time arrived{};  // when `gpushare run` asked, otherwise when its first context was seen

  // GPU time that it has received, on each of its GPUs: what it had of all, by their number. Where
  // clients share a context: the time in which it had the turn, times the SMs that it could use /
  // all.
  Nanos service{};
  Nanos start{};  // of that, what is taken for the start of its programs, and no part of a length
  std::optional<Nanos> left{};  // GPU time that it still needs on each; none: unknown
  LeftSource left_source = LeftSource::kUnknown;

  // What the processes of a job say of their iterations, and so may lie about. 0: unknown.
  // Mean from the begin of one iteration to the next, less what it waited at its boundary. What it
  // is stopped elsewhere, or does without the GPU, counts.
  Nanos period{};
  Nanos longest{};              // near the longest of the recent past
  uint64_t iterations = 0;      // that have ended
  bool wants_gpu = false;       // it has launched lately, or is held while it wants to
  bool is_at_boundary = false;  // it stands between two iterations, or is stopped

  bool runs = false;  // it has the turn now, also while it is being asked to stop
  Time since{};       // since when it runs, or has been waiting
  uint32_t lane = 0;  // of those on this GPU; today there is one

  ShimPhase phase = ShimPhase::kUnknown;
  Nanos target{};                   // the time that an iteration may take; 0: none
  uint64_t persistent_bytes = 0;    // what it holds at a boundary; 0: unknown
  uint64_t ephemeral_bytes = 0;     // what it needs more during an iteration; 0: unknown
  uint64_t gpus = 1;                // bit n: it works on GPU n. It has its turn on all or on none
  std::string_view command_line{};  // valid during the call; empty: unknown
};

// What shall be of one job.
struct JobDecision {
  uint64_t job = 0;         // JobView::id
  bool runs = false;        // false: it is stopped, at its boundary if it comes to one in time
  Time until{Time::max()};  // the end of its turn, if it is known; for people
  // How long its next boundary is waited for when it is to stop, before it is stopped where it is.
  Nanos grace = std::chrono::milliseconds(20);
  // Where the plans of several GPUs wait for each other and it was let in all the same: how long it
  // keeps its turn at least, before who has waited longest has the next one
  // (sched/jobs/who_runs.h).
  Nanos turn = std::chrono::milliseconds(25);
  // Why it waits or runs, shown in `gpushare queue` as it is: "turn of run-4711, 38 s left".
  std::string reason{};

  bool operator==(const JobDecision&) const = default;
};

}  // namespace gpushare
