// SPDX-License-Identifier: Apache-2.0
// Undoing: undoes what an agent that died has left on the GPUs, over a connection of its own to the
// driver, for the supervisor and `gpushared --recover`. Nothing here waits for the driver but
// wait(), which has an end: the driver is opened on a thread, and each GPU is asked on another one
// (sched/enforce/recoveries.h). A GPU that does not answer keeps nobody frozen on the others; what
// it lists stays listed, and is undone when it answers. What fails is tried again over a new
// connection, at once and then with growing pauses; so is a GPU whose driver one that has died may
// still be asking. All functions are called on one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "sched/daemon/gpus/backend.h"
#include "sched/enforce/recoveries.h"
#include "shmctl/plane/ledger.h"

namespace gpushare {

class Undoing {
 public:
  using Open = std::function<Result<std::unique_ptr<Gpu>>()>;
  using Writer = Recoveries::Writer;

  // What is done, beside what it stands on.
  struct Deeds {
    Open open;  // lists the GPUs: each is opened by the thread that asks it, or before
    Recovery::Resume resume;
    // Whether all calls of this GPU's driver are over that others have made before. Otherwise
    // nothing is undone there.
    std::function<Result<>(uint32_t gpu)> is_free = [](uint32_t) { return Result<>(); };
    // Called on other threads whenever advance() has something to do, also after the end of this.
    std::function<void()> told{};
  };
  // The others outlive it.
  Undoing(Region& region, const ProcReader& processes, const Clock& clock, Deeds deeds);

  // Opens the driver, unless it is open or being opened.
  void look_for_gpu();
  // Begins, or begins anew with another `writer`. Nothing is cleared from the ledger before that is
  // kHasEnded.
  void begin(Writer writer);
  // Somebody else does the rest: an agent that is started now.
  void call_off();

  // Enters what has come of it, and goes on.
  void advance();
  // When to call advance() if nothing is told before; Time::max(): not at all.
  Time next() const;
  // The same until nothing more is to be expected soon, at most kLongestWait. Whoever has not
  // answered for kPatience is not waited for, nor is a GPU that has not been free for as long.
  void wait();
  static constexpr Nanos kPatience = std::chrono::seconds(2), kLongestWait = 2 * kPatience;

  bool is_undone() const { return is_ledger_empty(region_); }
  // What was done since the last call: each process once, and the errors of the last try. Of the
  // GPUs that do not answer the log tells.
  RecoveryReport take_report();

 private:
  class Bell;

  void enter(RecoveryReport report, Writer writer, const void* asked);
  void take_opened();
  std::set<uint32_t> not_free();
  void collect();
  void try_soon();
  void put_off();
  void drop_gpu();
  void name_the_silent();
  bool is_expected_soon() const;

  Region& region_;
  const Clock& clock_;
  const Open open_;
  const std::function<Result<>(uint32_t gpu)> is_free_;
  const std::shared_ptr<Bell> bell_;
  Opening<std::unique_ptr<Gpu>> opening_;
  Recoveries recoveries_;
  std::shared_ptr<Gpu> gpu_;      // nullptr: none is open
  std::optional<Writer> wanted_;  // nullopt: nothing is to be undone
  Time again_at_ = Time::max();   // when to begin with what is not under way
  int failures_ = 0;              // in a row
  std::string refusal_;           // why the driver could not be opened the last time
  RecoveryReport report_;
  std::set<ProcessId> thawed_;  // and told
  std::set<uint32_t> silent_;   // GPUs of which the log says that they do not answer
  std::set<uint32_t> taken_;    // GPUs that were not free at the last try
  Time taken_since_{};          // valid while there are any: when the first of them was found
  bool is_opening_silent_ = false;
};

}  // namespace gpushare
