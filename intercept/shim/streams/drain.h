// SPDX-License-Identifier: Apache-2.0
// How long launches are held until the queue of the process has run empty, so that a partition can
// be made. A queue whose kernels end always runs empty, however long it is; a kernel that waits for
// the host may wait for the very launch that is held. The two are told apart by progress:
// milestones that were put into the queue while the program launched, and streams that run empty.
// Drain decides, and is pure; Milestones says what it needs to know. Both are protected by the
// device's lock, except where a member says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "intercept/shim/driver/driver.h"
#include "intercept/shim/link/spin_lock.h"

namespace gpushare::shim {

// Zero bytes are a Drain that holds nothing.
class Drain {
 public:
  // How long launches are held without progress, at least and at most: so many of the longest
  // intervals between two steps of progress. A program that fills its queue at once has no
  // milestone in most of it, so the least is long.
  static constexpr uint64_t kLeastPatienceNs = 1'000'000'000, kMostPatienceNs = 60'000'000'000,
                            kIntervals = 4;
  // Launches are not held for so long after they were held in vain, and each time twice as long.
  static constexpr uint64_t kFirstPauseNs = 1'000'000'000, kLongestPauseNs = 600'000'000'000;
  // Nobody has asked for so long: the launches that were held have gone on for another reason.
  static constexpr uint64_t kForgottenNs = 200'000'000;

  bool is_pausing(uint64_t now) const { return now < pause_until_ns_; }
  // Returns false if launches are not to be held any longer; a pause then begins. `left`: how many
  // streams are not empty and how many milestones were not passed. `interval_ns`: the longest that
  // was seen between the ends of two of them; 0: unknown. Only what has not ended before counts as
  // progress, so a program is held for a limited time even if other threads fill its streams.
  bool may_hold(uint64_t now, uint32_t left, uint64_t interval_ns);
  // The partition is there, or nobody wants it any more. `was_made`: nothing was in its way.
  void end(bool was_made) {
    begin_ns_ = 0;
    if (was_made) pause_ns_ = 0;
  }
  void pause(uint64_t now);
  // How long the launches are held already; 0: they are not.
  uint64_t held_ns(uint64_t now) const { return begin_ns_ == 0 ? 0 : now - begin_ns_; }

 private:
  uint64_t begin_ns_, progress_ns_, asked_ns_, longest_step_ns_;
  uint32_t least_left_;
  uint64_t pause_ns_, pause_until_ns_;
};

// Events that are recorded between the launches of a program, so densely that several are in its
// queue at any time, however long that is. Zero bytes are none.
class Milestones {
 public:
  // Any thread. Records one in this stream if it is time for it; returns false if it is not.
  // `place`: the partition, as in ShimGpu::wanted, if all that is in line runs there.
  // REQUIRES: the context of the stream is current, and nothing captures.
  bool record(const Driver& driver, CUstream stream, uint64_t now, std::optional<uint64_t> place);
  // Any thread. Whether a wait may see one pass; then it is to look.
  bool is_watching() const { return is_watching_.load(std::memory_order_relaxed); }
  void look_after_wait(const Driver& driver, uint64_t now);
  // Any thread. How many are on their way.
  uint32_t count_left(const Driver& driver);
  // The longest of the last intervals between two of them in which the queue was never empty; 0:
  // there was none.
  uint64_t interval_ns() const { return interval_ns_.load(std::memory_order_relaxed); }
  void drop(const Driver& driver);

  // How long it takes from a launch until all that was in line before it has ended, smoothed; 0:
  // not known yet. A program that keeps its queue full launches when something in it has ended, so
  // that is seen by launches, as long as each of them looks. One that waits for its work would see
  // it at its next launch only, however long its host takes until then: so waits look as well, and
  // a milestone in an empty queue counts as 1 ns. And in which partition.
  uint64_t drain_ns() const { return drain_ns_.load(std::memory_order_relaxed); }
  uint64_t drain_place() const { return drain_place_.load(std::memory_order_relaxed); }

 private:
  static constexpr unsigned kMost = 32, kIntervals = 8;
  // A new drain changes the smoothed one by so many parts of the difference.
  static constexpr int64_t kDrainParts = 4;
  static constexpr uint64_t kWatchEveryNs = 50'000'000, kLookEveryNs = 250'000;
  // Between two of them: this at first, twice as long whenever all are on their way.
  static constexpr uint64_t kLeastSpacingNs = 2'000'000, kMostSpacingNs = 1'000'000'000;

  void look_what_passed(const Driver& driver, uint64_t now);
  void set_watching(bool is) { is_watching_.store(is, std::memory_order_relaxed); }
  void learn(uint64_t drain_ns, uint64_t place);

  SpinLock lock_;  // of what follows
  CUevent events_[kMost];
  bool is_on_its_way_[kMost];
  uint64_t recorded_ns_[kMost], places_[kMost];
  bool tells_drain_[kMost];  // each launch since then has looked
  unsigned oldest_;          // that may be on its way
  unsigned watched_;
  uint64_t watched_since_ns_, looked_ns_, looked_in_vain_ns_;
  unsigned next_;
  uint64_t last_ns_, spacing_ns_, intervals_[kIntervals];
  unsigned interval_count_;
  // Where launches are dense, one milestone is looked for until it has passed, now and then.
  std::atomic<bool> is_watching_;
  std::atomic<uint64_t> interval_ns_, drain_ns_, drain_place_;
};

}  // namespace gpushare::shim
