// SPDX-License-Identifier: Apache-2.0
// Slices: gives channel groups the time slices of a plan, and their own ones back. Only what
// differs is asked of the driver. Before the first change of a group its former slice is written
// into the ledger. A slice that the process sets itself later is its own from then on. One thread;
// calls block as long as the driver does.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "sched/enforce/controlled.h"
#include "sched/enforce/leftovers.h"

namespace gpushare {

class Slices {
 public:
  // `changed` is told of each process whose slice was set. All outlive it.
  Slices(Gpu& gpu, Ledger& ledger, const Clock& clock, const Leftovers& leftovers,
         AllControlled& all, std::function<void(const ControlChange&)> changed);

  // The time that slices may take between two calls of begin_step(): one takes 0.3 ms on an H200.
  static constexpr Nanos kStepTime = std::chrono::milliseconds(4);
  void begin_step() { left_ = kStepTime; }
  // Whether set() has left slices as they were, for want of time.
  bool is_behind() const { return left_ <= Nanos{}; }

  // Those come first that are furthest from what they should be, by their ratio. Processes that
  // cannot be controlled now, or share their group, are left as they are.
  void set(uint32_t gpu, std::span<const ControlTarget> targets);
  // Gives the group its own slice back. Returns false when it stays in the ledger.
  bool restore(ControlledGroup& group);
  // The group is another one by now: what was set is gone with it.
  void drop(ControlledGroup& group);

 private:
  void set(const ControlTarget& target, Controlled& process);
  Result<> set(ControlledGroup& group, const ComputeGroup& seen, Micros slice, uint32_t gpu);
  void refused(const ControlKey& key, Controlled& process, const Error& error);

  Gpu& gpu_;
  Ledger& ledger_;
  const Clock& clock_;
  const Leftovers& leftovers_;
  AllControlled& all_;
  const std::function<void(const ControlChange&)> changed_;
  Nanos left_ = kStepTime;
};

// The slice that the group has: ours, otherwise what the process chose; nullopt: not known.
// `process` may be nullptr.
std::optional<Micros> slice_of(const Controlled* process, const ComputeGroup& seen);

}  // namespace gpushare
