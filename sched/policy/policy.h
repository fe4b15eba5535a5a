// SPDX-License-Identifier: Apache-2.0
// What a scheduling policy is: a function of what is known of one GPU now (Snapshot) and of the
// policy's own small memory, to what should be (Plan), for time and space alike. It does no I/O,
// reads no clock and asks no driver. The scheduler takes the snapshot and hands the plan to those
// that carry it out: slices and freezes to the enforcer, partitions to Spatial, turns of
// jobs to those that carry them out.
//
// There is one Policy object for each GPU, called on the agent's one thread. A policy is known by
// its line in sched/policies/policies.cc; docs/writing_a_policy.md explains how to add one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sched/policy/job.h"
#include "sched/policy/sm_geometry.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/process_id.h"
#include "shmctl/plane/layout.h"
#include "shmctl/shim/slot.h"

namespace gpushare {

// --- the snapshot

struct GpuView {
  uint32_t index = 0;
  std::string_view name;  // "NVIDIA H200"; valid during the call
  SmGeometry geometry{};
  bool is_spatial = false;   // sharing = "spatial": the plan's partitions are carried out
  bool has_overlap = false;  // overlap = true: see percent_partitions.h
  double switching = 0;      // part of the last second that went into changes of context, 0..1
};

// A cap and the state of its token bucket on this GPU.
struct CapView {
  double fraction = 1;  // quota / period: tokens that come back, in GPU ns per ns
  Nanos period = std::chrono::milliseconds(100);
  Nanos burst{};   // the most tokens that the bucket can hold
  Nanos tokens{};  // now; negative: overdrawn
};

// A tenant with processes on this GPU. Tenants stand side by side here: the weight and the cap of
// one that is below others in the tree of tenants are such that it gets what the tree gives it.
struct TenantView {
  uint32_t id = 0;      // its slot in the control plane (< kMaxTenants), unique in a snapshot
  double weight = 100;  // > 0
  Priority priority = Priority::kNormal;
  // The one that holds it back most now, of its own and of those of the tenants above it.
  std::optional<CapView> cap{};
  double ceiling = 1;  // takes at most this share, by a cap that it has together with others
  std::optional<uint32_t> sm_percent{};
  Nanos slo{0};                            // the target time of an iteration; 0: none
  TenantPhase phase = TenantPhase::kAuto;  // what it says that its processes do
  bool is_frozen_by_user = false;
  bool has_shim = false;  // a process of it has the shim, so that it can be given a partition
  uint32_t groups = 0;    // SM groups in use now; 0: none, or not known
  uint32_t sharers = 1;   // tenants that have the same partition, this one included
};

// What a process says of its iterations, by the shim. The process wrote it, so it may lie: each
// value is in its range, but what two readings together say may be impossible.
struct IterationsView {
  ShimSource source = ShimSource::kNone;
  uint32_t confidence = 0;  // permille; 1000 when the program announces its iterations
  ShimPhase phase = ShimPhase::kUnknown;
  // Sums over the life of the process.
  uint64_t begun = 0, ended = 0;
  Time began{};             // when the last one began; zero: unknown
  uint64_t busy_ns = 0;     // over those that ended: less what the GPU surely idled
  uint64_t latency_ns = 0;  // over those that ended: from arrival to end
  uint64_t arrivals = 0;    // announced requests; 0: they are not announced
  uint64_t launches = 0;    // of all threads, by another count of the process
  uint64_t period_ns = 0;   // mean, from begin to begin; 0: unknown
  uint64_t p99_ns = 0;      // near the longest of the recent past; 0: unknown
  uint32_t slo_us = 0;      // the target that the program asks for; 0: none
  uint64_t expected = 0;    // iterations that it expects to make in all; 0: it does not say
  // Since when a thread stands at an iteration that the plan holds back.
  std::optional<Time> waits_since{};

  bool operator==(const IterationsView&) const = default;
};

// A process with a compute channel group on this GPU, or with the shim and no group yet.
struct ProcessView {
  uint32_t id = 0;                 // unique in a snapshot; below kMaxProcesses where has_context
  ProcessId process{};             // its pid and start time
  uint32_t tenant = 0;             // TenantView::id
  bool has_context = true;         // false: it has no channel group yet; only partitions concern it
  bool has_shim = false;           // it can be moved into a partition and held at an iteration
  bool wants_gpu = true;           // it has or had work lately; while frozen: as it was before
  bool is_frozen = false;          // as enforced now
  bool is_frozen_by_user = false;  // or its tenant: the scheduler sees to it, whatever is planned
  bool is_held = false;          // it waits for a turn that is not the policy's: it will be frozen
  bool can_control = true;       // false: it is only observed, and a decision must not name it
  Micros slice{2048};            // as enforced now
  double share = -1;             // measured over the accounting window; < 0: unknown
  Nanos used{};                  // GPU time charged since the last call, without its switches
  Nanos returned{};              // charged before, while it was alone: now known to be no use
  uint32_t turns = 0;            // times that it was switched in since the last call
  std::optional<CapView> cap{};  // its own, besides its tenant's
  Time came{};                   // when the agent first saw it here
  uint64_t memory_bytes = 0;     // video memory on this GPU
  std::string_view command_line{};  // valid during the call; empty: unknown
  uint64_t job = 0;                 // JobView::id of the job that it belongs to; 0: none
  // Of a process with the shim.
  Time last_launch{};
  bool lends = false;  // its gate is closed while its tenant lends: it runs on no group now
  std::optional<IterationsView> iterations{};  // none: unknown now
  // What it does of a language model's work: what its tenant says, otherwise what it shows itself.
  ShimPhase phase = ShimPhase::kUnknown;

  // Whether a slice or a freeze of it may be planned.
  bool can_plan() const { return has_context && can_control && !is_frozen_by_user; }
};

struct Snapshot {
  Time now{};
  std::span<const TenantView> tenants{};     // ascending by id
  std::span<const ProcessView> processes{};  // ascending by process
  GpuView gpu{};
  std::span<const JobView> jobs{};  // ascending by id
};

// --- the plan

// For accounting. What people read is Decision::reason.
enum class FreezeReason : uint8_t { kNone, kCap, kTurn, kUser };

// The word for it in traces and in the history of the use; empty for kNone.
constexpr const char* freeze_reason_name(FreezeReason reason) {
  constexpr const char* kNames[] = {"", "cap", "turn", "user"};
  return kNames[static_cast<size_t>(reason)];
}

// What shall be of one process. What is left at its default is not asked for.
struct Decision {
  uint32_t process = 0;                       // ProcessView::id
  Micros slice{0};                            // 0: as it is
  FreezeReason freeze = FreezeReason::kNone;  // kNone: it runs; a frozen process is thawed
  double target = -1;  // share of the GPU that it should get while the same processes are active
  // Iterations beyond so many begun wait at their boundary; 0: none waits. It holds until the next
  // plan, and for a process with the shim only.
  uint64_t run_until = 0;
  // Shown in status as it is while the process is frozen; empty: the kind says enough.
  std::string reason{};

  bool operator==(const Decision&) const = default;
};

// One set of SM groups, and who has it. The partitions of a plan never overlap: where they are too
// large together all are scaled down, none below one group.
struct PlannedPartition {
  static constexpr Nanos kIdleAfter = std::chrono::milliseconds(500);

  std::vector<uint32_t> tenants;  // TenantView::id; at least one, and each in one partition
  uint32_t groups = 1;            // at least 1
  bool can_borrow = true;         // it also takes what others lend and nobody planned
  // When all of its tenants have launched nothing for so long, it lends all but one group.
  Nanos idle_after = kIdleAfter;
  // While it lends, the next launch of its processes wakes the agent, and waits until it has its
  // groups again, but no longer than Spatial::kLongestReturn.
  bool is_returned_at_once = false;
};

// What a policy that serves target times says of a tenant, for status.
struct SloStatus {
  uint32_t tenant = 0;  // TenantView::id
  Nanos slo{0};         // in force; 0: none
  bool is_asked_by_program = false;
  double latency = -1, p99 = -1;  // seconds; < 0: unknown
  double throughput = -1;         // iterations a second; < 0: unknown
  ShimSource source = ShimSource::kNone;
  uint32_t confidence = 0;  // permille
  uint32_t knee = 0;        // groups; 0: unknown
  uint32_t needs = 0;       // groups; 0: unknown
  SloState state = SloState::kNone;
  ShimPhase phase = ShimPhase::kUnknown;
};

// It is carried out in this order: thaws, freezes (or freezes, thaws); slices; then partitions;
// then jobs.
struct Plan {
  std::vector<Decision> decisions;           // at most one for each controllable process
  std::vector<PlannedPartition> partitions;  // a tenant in none of them uses the whole GPU
  std::vector<SloStatus> statuses;
  // The jobs in their order: those that have the turn, then those that wait, the next one first.
  // Each job of the snapshot is named at most once. Nothing is asked of a job that is not named: it
  // runs as it likes. While the first one launches nothing, the next one that wants the GPU may be
  // let in without a new plan, until the first one launches again.
  std::vector<JobDecision> jobs;
  // When the policy must run again even if nothing happens (a bucket refills, a turn ends).
  Time next{Time::max()};
  bool needs_fast_tick = false;  // background work takes turns: tick every tick_fast_ms
  // Who is frozen stops before anybody is thawed: the GPU may stand still for a moment, so that two
  // that take turns are never both in the way of somebody who must not wait.
  bool freezes_first = false;
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Deterministic: the same sequence of snapshots gives the same plans. Never throws. O(n log n).
  virtual Plan plan(const Snapshot& snapshot) = 0;
};

}  // namespace gpushare
