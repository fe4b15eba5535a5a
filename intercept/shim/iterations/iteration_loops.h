// SPDX-License-Identifier: Apache-2.0
// The loop of a launch sequence without marks: the step (a function after the two before it, on one
// stream) that leads back to the top of the loop. README.md says how it is told from the others
// ("Loops without marks").
//
// Pure, fixed space, one caller at a time. O(1): a look at four more entries with every launch
// finds the top anew after 512.
#pragma once

#include <cstdint>

namespace gpushare::shim {

class IterationLoops {
 public:
  // `step`: a number for the `position`-th launch on stream number `stream` and the two before it;
  // `breaks`: waits so far. `is_needed`: no other rule finds iterations at present, so a top that
  // is not seen gets older.
  void learn(uint32_t step, uint32_t stream, uint32_t position, uint32_t breaks, bool is_needed);
  // Returns true if this function has not been launched before, and then notes it. Forgets all
  // functions now and then.
  bool is_new(uint32_t function) {
    return (seen_[function >> 26] >> (function >> 20 & 63) & 1) == 0 && note(function);
  }
  // How often another transition has become the top.
  uint32_t changes() const { return changes_; }
  // To be asked once for every launch; true: it need not be learned. A trusted loop is learned for
  // an eighth of the time; a program in which none was found in 25,000 launches for a fifth, so
  // that a later loop is found at most 100,000 launches late. `is_new`: what was learned does not
  // count.
  bool is_resting(bool is_trusted, bool is_new);
  bool is_top(uint32_t step) const { return has_top_ && step == top_step_; }
  bool has_top() const { return has_top_; }
  // Until launches_before_choice() more launches were learned, no other step becomes the top,
  // though this one may cease to be. REQUIRES: has_top().
  uint32_t top_step() const { return top_step_; }
  uint32_t launches_before_choice() const { return (kSteps - looking_) / kLooks - 1; }

 private:
  static constexpr uint32_t kSteps = 2048;
  static constexpr uint32_t kWays = 4;
  static constexpr uint32_t kLooks = 4;                 // at entries, with every launch
  static constexpr uint32_t kAround = 7;                // steps before and after one
  static constexpr uint32_t kRecent = 2 * kAround + 2;  // with it, a power of two

  struct Step {
    uint32_t key = 0;  // a hash of the step and the stream; 0: a free entry
    uint32_t step = 0;
    uint32_t born = 0;                  // the value of learned_ when it was first seen
    uint32_t position = 0, needed = 0;  // the position and needed_ when it occurred last
    uint32_t breaks = 0;
    float distance = 0;  // mean
    uint32_t last_distance = 0;
    uint16_t good = 0, bad = 0;   // how many distances were like the mean, and how many were not
    int32_t drop = kUnknownDrop;  // how much younger the steps before it are than those after it
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
  uint16_t recent_[kRecent] = {};  // the last steps of one stream, as indices of steps_
  uint32_t next_recent_ = 0;
  uint32_t recent_count_ = 0;
  uint32_t recent_stream_ = 0;
  uint32_t learned_ = 0;  // launches
  uint32_t needed_ = 0;   // those of them that were needed
  uint32_t looking_ = 0;  // the next entry to look at
  int best_ = -1, top_ = -1;
  uint32_t top_key_ = 0, top_step_ = 0;
  bool has_top_ = false;
  uint32_t changes_ = 0;
  uint32_t awake_ = 0, rest_ = 0;  // launches
  uint32_t rests_ = 0;
};

}  // namespace gpushare::shim
