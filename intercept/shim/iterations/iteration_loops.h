// SPDX-License-Identifier: Apache-2.0
// The loop of a launch sequence without marks. Every step (a function after the two before it, on
// one stream) keeps the distance to its last occurrence, in launches. A step that occurs once in an
// iteration has a regular distance, the longest there is: those inside layers have shorter ones.
//
// Which of those steps is the way back to the top? In the first iteration steps are seen for the
// first time one after the other, so ever after those at the end of an iteration are younger than
// those at its beginning; nowhere else does age rise from one step to the next. So it is the step
// before which the steps are youngest and after which oldest (medians of seven), and that is
// younger than those before it: it was first taken when the second iteration began.
//
// Distances across a wait are not counted: what happens every 100 iterations brings a result to the
// host. Pure, fixed space, O(1): a look at four more entries with every launch finds the top anew
// after 512.
#pragma once

#include <cstdint>

namespace gpushare::shim {

class IterationLoops {
 public:
  // `step`: the number of the `position`-th launch and the two before it, on stream number
  // `stream`; `breaks`: waits so far.
  // `is_needed`: no other rule finds iterations at present, so that a top which is not seen grows
  // old.
  void learn(uint32_t step, uint32_t stream, uint32_t position, uint32_t breaks, bool is_needed);
  // Has this function been launched before? Then says so from now on. Forgets all, now and then.
  bool is_new(uint32_t function) {
    return (seen_[function >> 26] >> (function >> 20 & 63) & 1) == 0 && note(function);
  }
  // How often another transition has become the top.
  uint32_t changes() const { return changes_; }
  // A loop that is trusted is learned only for an eighth of the time; a program in which none was
  // found in 25,000 launches for a fifth, so one that it comes to later is found 100,000 launches
  // later at worst. Asked once for every launch. `is_new`: nothing that was learned counts.
  bool is_resting(bool is_trusted, bool is_new);
  bool is_top(uint32_t step) const { return has_top_ && step == top_step_; }
  bool has_top() const { return has_top_; }
  // REQUIRES: has_top(). Stays so for launches_before_choice() launches, at least; or is no top.
  uint32_t top_step() const { return top_step_; }
  uint32_t launches_before_choice() const { return (kSteps - looking_) / kLooks - 1; }

 private:
  static constexpr uint32_t kSteps = 2048;
  static constexpr uint32_t kWays = 4;
  static constexpr uint32_t kLooks = 4;                 // at entries, with every launch
  static constexpr uint32_t kAround = 7;                // steps before and after one
  static constexpr uint32_t kRecent = 2 * kAround + 2;  // with it, a power of two

  struct Step {
    uint32_t key = 0;  // of it and the stream; 0: free
    uint32_t step = 0;
    uint32_t born = 0;                  // when it was first seen: learned_ then
    uint32_t position = 0, needed = 0;  // when it occurred last
    uint32_t breaks = 0;
    float distance = 0;  // mean
    uint32_t last_distance = 0;
    uint16_t good = 0, bad = 0;   // distances like the mean; others
    int32_t drop = kUnknownDrop;  // of the births around it
  };
  static constexpr int32_t kUnknownDrop = -0x7FFFFFFF;

  Step& entry(uint32_t step, uint32_t stream);
  void add_distance(Step& step, uint32_t distance);
  void remember(uint32_t index, uint32_t stream);
  void look_at(const Step& step);
  void choose();
  bool note(uint32_t function);
  bool is_regular(const Step& step) const;

  Step steps_[kSteps];
  uint64_t seen_[64] = {};  // a bit for each function, hashed
  uint32_t seen_count_ = 0;
  uint16_t recent_[kRecent] = {};  // entries, the last ones of one stream
  uint32_t next_recent_ = 0;
  uint32_t recent_count_ = 0;
  uint32_t recent_stream_ = 0;
  uint32_t learned_ = 0;  // launches
  uint32_t needed_ = 0;   // of those
  uint32_t looking_ = 0;
  int best_ = -1, top_ = -1;
  uint32_t top_key_ = 0, top_step_ = 0;
  bool has_top_ = false;
  uint32_t changes_ = 0;
  uint32_t awake_ = 0, rest_ = 0;  // launches
  uint32_t rests_ = 0;
};

}  // namespace gpushare::shim
