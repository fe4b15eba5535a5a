// SPDX-License-Identifier: Apache-2.0
// DriverLine: the way to the driver for all that concerns one GPU: freezes and thaws, which go
// first, questions, and time slices. Only one call of a GPU is under way at a time, so a slice and
// a freeze of the same group never meet in the driver, and a freeze waits for one slice at most. A
// GPU whose driver does not answer, or whose lock others hold, holds up its own line alone.
//
// There are two kinds. On a thread of its own (the agent): the caller never waits. In the call
// itself (tests in virtual time, which are the same in every run): what is asked for is done when
// the function returns. The caller takes what came of it with take_done(), and has written ahead
// what must be undone if it dies before. All functions are called on one thread, the scheduler's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "intercept/gpu.h"
#include "sched/enforce/controlled.h"
#include "sched/enforce/deeds.h"
#include "shmctl/base/clock.h"

namespace gpushare {

enum class DriverCalls { kInStep, kOnThreads };

// What is asked for one channel group.
struct SliceOrder {
  enum class Kind {
    kSet,
    kRead,    // what it is, before it is set for the first time
    kRestore  // as kSet, and not replaced by later orders
  };
  Kind kind{};
  ControlKey key;
  GroupRef ref;
  uint32_t own_slice_count = 0;  // of the group, when this was asked for
  Micros slice{0};               // to be set; after kRead, what it is
  Result<> result{};
  Time at{};  // when the driver had answered
};

// Something else that is asked of the driver: called where the line makes its calls, it touches
// nothing but the driver and what it owns. What it returns, unless that is empty, is for the
// caller's thread, and says what came of it.
using DriverAnswer = std::function<void()>;
using DriverQuestion = std::function<DriverAnswer()>;

struct DoneDeeds {
  std::vector<FreezeDeed> freezes;
  std::vector<ThawDeed> thaws;
  std::vector<SliceOrder> slices;
  std::vector<DriverAnswer> answers;  // to be called

  bool is_empty() const {
    return freezes.empty() && thaws.empty() && slices.empty() && answers.empty();
  }
};

class DriverLine {
 public:
  virtual ~DriverLine() = default;

  // Before all slices that have not begun. What is asked for while a call is under way goes
  // together in the next one, in the order of Switches::add(). REQUIRES: nothing of these
  // processes is still to be told by take_done().
  virtual void add(Switches switches) = 0;
  // After the freezes and thaws, in the order of these calls; before all slices that have not
  // begun.
  virtual void ask(DriverQuestion question) = 0;
  // The process has ended, or has nothing on the GPU any more: a freeze of it fails as
  // no_such_process without the driver being asked, if it has not begun. Programs that come and go
  // quickly would otherwise make all freezes of the GPU late.
  virtual void call_off(const ControlKey& key) = 0;
  // Sets slices in this order, instead of those that were asked for and have not begun (but
  // kRestore): these are forgotten.
  virtual void set(std::vector<SliceOrder> orders) = 0;
  // Before all other slices, and never forgotten.
  virtual void restore(std::vector<SliceOrder> orders) = 0;
  // Forgets the slices of this process that have not begun. False: one is being set now, or a
  // restored one waits, or take_done() has still to tell of one.
  virtual bool withdraw(const ControlKey& key) = 0;
  // What was done since the last call.
  virtual DoneDeeds take_done() = 0;
  // Whether the driver has not come back from a call for kStuck.
  virtual bool is_stuck() const = 0;
  // Waits until there is nothing more to do, but not longer. Returns false when there is.
  virtual bool wait(Nanos patience) = 0;

  // Whoever asks while others hold the driver's lock waits for some 0.1 s (48 programs that start
  // at once, on an H200).
  static constexpr Nanos kStuck = std::chrono::seconds(2);
};

// `gpu` and `clock` outlive it. The end of one with a thread waits for the call under way.
std::unique_ptr<DriverLine> make_driver_line(DriverCalls calls, Gpu& gpu, uint32_t index,
                                             const Clock& clock);
using MakeDriverLine =
    std::function<std::unique_ptr<DriverLine>(Gpu& gpu, uint32_t index, const Clock& clock)>;
MakeDriverLine driver_lines(DriverCalls calls);

}  // namespace gpushare
