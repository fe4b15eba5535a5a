// SPDX-License-Identifier: Apache-2.0
// The loop of a launch sequence without marks. Every transition (function -> function on one
// stream) keeps the distance to its last occurrence, in launches. A transition that occurs once in
// an iteration has a regular distance, the longest there is: those inside layers have shorter ones.
// Of the transitions with the longest regular distance the top is the way back: the one that leads
// from the function first seen last (of the optimizer) to the function first seen first (of the
// forward pass).
//
// Distances across a wait are not counted: what happens every 100 iterations brings a result to the
// host. Pure, fixed space, O(1): a look at four more entries with every launch finds the top anew
// after 512.
#pragma once

#include <cstdint>

namespace gpushare::shim {

class IterationLoops {
 public:
  // The `position`-th launch of stream number `stream`; `breaks`: waits so far.
  void learn(uint32_t from, uint32_t to, uint32_t stream, uint32_t position, uint32_t breaks);
  // Every launch, so that the order of first appearance is known when it is needed.
  void see(uint32_t function) {
    if ((seen_[function >> 26] >> (function >> 20 & 63) & 1) == 0) rank_of(function);
  }
  // How often another transition has become the top.
  uint32_t changes() const { return changes_; }
  // A loop that is trusted is learned only for an eighth of the time. Asked once for every launch.
  bool is_resting(bool is_trusted);
  bool is_top(uint32_t transition) const { return has_top_ && transition == top_transition_; }

 private:
  static constexpr uint32_t kTransitions = 2048;
  static constexpr uint32_t kWays = 4;
  static constexpr uint32_t kFunctions = 1024;

  struct Transition {
    uint32_t key = 0;  // of it and the stream; 0: free
    uint32_t transition = 0;
    uint32_t position = 0, learned = 0;  // when it occurred last
    float distance = 0;                  // mean
    uint16_t good = 0, bad = 0;          // distances like the mean; others
    uint16_t from_rank = 0, to_rank = 0;
    uint32_t breaks = 0;
    uint32_t last_distance = 0;
  };
  struct Rank {
    uint32_t function = 0;
    uint32_t rank = 0;
  };

  Transition& entry(uint32_t from, uint32_t to, uint32_t stream);
  uint16_t rank_of(uint32_t function);
  void add_distance(Transition& transition, uint32_t distance);
  void look_at(const Transition& transition);
  void choose();
  bool is_regular(const Transition& transition) const;

  Transition transitions_[kTransitions];
  uint64_t seen_[64] = {};  // functions in `ranks_`, and a few more
  Rank ranks_[kFunctions];
  uint32_t rank_count_ = 0;
  uint32_t learned_ = 0;
  uint32_t looking_ = 0;
  int best_ = -1, top_ = -1;
  uint32_t top_key_ = 0, top_transition_ = 0;
  bool has_top_ = false;
  uint32_t changes_ = 0;
  uint32_t awake_ = 0, rest_ = 0;  // launches
  uint32_t rests_ = 0;
};

}  // namespace gpushare::shim
