// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/iteration_loops.h"

#include <cstddef>

#include "intercept/shim/iteration_hash.h"

namespace gpushare::shim {
namespace {

constexpr uint32_t kLooks = 4;         // at entries, with every launch
constexpr uint16_t kFewest = 2;        // like distances that make a regular one
constexpr uint16_t kFewestLonger = 6;  // where a shorter one is well known
constexpr uint16_t kHalveAt = 1024;
constexpr uint16_t kTopPenalty = 16;  // for a top that turned out to be none
constexpr float kShortest = 4;        // a kernel that is launched again and again is no iteration
constexpr float kAwake = 64;          // distances of the top, which a longer loop may need to show
constexpr float kLonger = 1.25F;
constexpr uint32_t kPatience = 8;  // distances without an occurrence

bool is_near(float value, float mean) {
  const float difference = value > mean ? value - mean : mean - value;
  return 4 * difference <= mean;
}

}  // namespace

void IterationLoops::learn(uint32_t from, uint32_t to, uint32_t stream, uint32_t position,
                           uint32_t breaks) {
  ++learned_;
  breaks += rests_;
  Transition& transition = entry(from, to, stream);
  if (transition.position != 0 && transition.breaks == breaks)
    add_distance(transition, position - transition.position);
  transition.position = position;
  transition.learned = learned_;
  transition.breaks = breaks;
  for (uint32_t i = 0; i < kLooks; ++i) {
    look_at(transitions_[looking_]);
    looking_ = (looking_ + 1) % kTransitions;
  }
  if (looking_ == 0) choose();
}

bool IterationLoops::is_resting(bool is_trusted) {
  if (!is_trusted || !has_top_) {
    awake_ = rest_ = 0;
    return false;
  }
  if (rest_ != 0) {
    --rest_;
    return true;
  }
  const auto enough = static_cast<uint32_t>(kAwake * transitions_[top_].distance);
  if (++awake_ >= enough) {
    awake_ = 0;
    rest_ = 7 * enough;
    ++rests_;
  }
  return false;
}

IterationLoops::Transition& IterationLoops::entry(uint32_t from, uint32_t to, uint32_t stream) {
  const uint32_t transition = transition_number(from, to);
  const uint32_t key = (transition + stream * 0x9E3779B9U) | 1;
  Transition* const set = transitions_ + std::size_t{key >> 1} % (kTransitions / kWays) * kWays;
  Transition* oldest = set;
  for (Transition* one = set; one != set + kWays; ++one) {
    if (one->key == key) return *one;
    if (one->learned < oldest->learned) oldest = one;
  }
  *oldest = Transition{};
  oldest->key = key;
  oldest->transition = transition;
  oldest->from_rank = rank_of(from);
  oldest->to_rank = rank_of(to);
  return *oldest;
}

// Full: a process that has had that many functions starts over.
uint16_t IterationLoops::rank_of(uint32_t function) {
  uint32_t i = function % kFunctions;
  while (ranks_[i].function != 0 && ranks_[i].function != function) i = (i + 1) % kFunctions;
  if (ranks_[i].function == 0) {
    if (rank_count_ >= kFunctions / 4 * 3) {
      for (Rank& rank : ranks_) rank = Rank{};
      for (uint64_t& word : seen_) word = 0;
      rank_count_ = 0;
      i = function % kFunctions;
    }
    ranks_[i] = {function, ++rank_count_};
    seen_[function >> 26] |= 1ULL << (function >> 20 & 63);
  }
  return static_cast<uint16_t>(ranks_[i].rank);
}

void IterationLoops::add_distance(Transition& transition, uint32_t distance) {
  const auto value = static_cast<float>(distance);
  if (is_near(value, transition.distance)) {
    ++transition.good;
    transition.distance += (value - transition.distance) / 8;
  } else if (is_near(value, static_cast<float>(transition.last_distance)) &&
             2 * transition.bad >= transition.good) {
    transition.distance = value;  // another program than before
    transition.good = 1;
    transition.bad = 0;
  } else {
    const bool is_top = has_top_ && transition.key == top_key_;
    transition.bad = static_cast<uint16_t>(transition.bad + (is_top ? kTopPenalty : 1));
    if (is_top && !is_regular(transition)) has_top_ = false;
  }
  transition.last_distance = distance;
  if (transition.good < kHalveAt && transition.bad < kHalveAt) return;
  transition.good /= 2;
  transition.bad /= 2;
}

bool IterationLoops::is_regular(const Transition& transition) const {
  return transition.distance >= kShortest && transition.good >= kFewest &&
         16 * transition.bad <= transition.good &&
         static_cast<float>(learned_ - transition.learned) <=
             static_cast<float>(kPatience) * transition.distance + 64;
}

void IterationLoops::look_at(const Transition& transition) {
  if (!is_regular(transition)) return;
  if (best_ >= 0) {
    const Transition& best = transitions_[best_];
    if (transition.distance * kLonger < best.distance) return;
    const int span = transition.from_rank - transition.to_rank;
    const bool is_longer = transition.distance > best.distance * kLonger;
    if (is_longer && best.good > kFewestLonger && transition.good < kFewestLonger) return;
    if (!is_longer && span <= best.from_rank - best.to_rank) return;
  }
  best_ = static_cast<int>(&transition - transitions_);
}

// The top stays where nothing is better, so that boundaries do not wander.
void IterationLoops::choose() {
  if (best_ >= 0 && is_regular(transitions_[best_])) {
    if (!has_top_ || top_key_ != transitions_[best_].key) ++changes_;
    top_ = best_;
    top_key_ = transitions_[top_].key;
    top_transition_ = transitions_[top_].transition;
    has_top_ = true;
  } else if (has_top_ && !is_regular(transitions_[top_])) {
    has_top_ = false;
  }
  best_ =
      has_top_ && transitions_[top_].key == top_key_ && is_regular(transitions_[top_]) ? top_ : -1;
}

}  // namespace gpushare::shim
