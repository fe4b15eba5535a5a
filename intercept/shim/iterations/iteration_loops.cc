// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/iterations/iteration_loops.h"

#include <cstddef>

namespace gpushare::shim {
namespace {

constexpr uint32_t kMostRecent = 64;   // other streams' steps until one of them is looked at
constexpr uint32_t kMostSeen = 1024;   // functions: a quarter of the bits of seen_
constexpr uint16_t kFewest = 2;        // so many like distances make a regular one
constexpr uint16_t kFewestLonger = 6;  // and so many where a shorter one is well known
constexpr uint16_t kHalveAt = 1024;
constexpr uint16_t kTopPenalty = 16;  // for a top that turned out to be none
constexpr float kShortest = 4;        // a kernel that is launched again and again is no iteration
// How long to learn before resting: in distances of the top, as a longer loop may need that to
// show, and in launches of a program in which no loop was found.
constexpr float kAwake = 64;
constexpr uint32_t kFruitless = 25'000;
constexpr float kLonger = 1.25F;   // a distance counts as longer from this ratio on
constexpr uint32_t kPatience = 8;  // a step is regular for so many distances after it last occurred

bool is_near(float value, float mean) {
  const float difference = value > mean ? value - mean : mean - value;
  return 4 * difference <= mean;
}

uint32_t median(uint32_t (&values)[7]) {
  for (uint32_t i = 1; i < 7; ++i)
    for (uint32_t j = i; j > 0 && values[j - 1] > values[j]; --j) {
      const uint32_t value = values[j];
      values[j] = values[j - 1];
      values[j - 1] = value;
    }
  return values[3];
}

}  // namespace

void IterationLoops::learn(uint32_t number, uint32_t stream, uint32_t position, uint32_t breaks,
                           bool is_needed) {
  ++learned_;
  if (is_needed) ++needed_;
  breaks += rests_;
  Step& step = entry(number, stream);
  if (step.position != 0 && step.breaks == breaks) add_distance(step, position - step.position);
  step.position = position;
  step.needed = needed_;
  step.breaks = breaks;
  remember(static_cast<uint32_t>(&step - steps_), stream);
  for (uint32_t i = 0; i < kLooks; ++i) {
    look_at(steps_[looking_]);
    looking_ = (looking_ + 1) % kSteps;
  }
  if (looking_ == 0) choose();
}

bool IterationLoops::is_resting(bool is_trusted, bool is_new) {
  if (is_new || is_trusted != has_top_) {
    awake_ = rest_ = 0;
    return false;
  }
  if (rest_ != 0) {
    --rest_;
    return true;
  }
  const uint32_t enough =
      has_top_ ? static_cast<uint32_t>(kAwake * steps_[top_].distance) : kFruitless;
  if (++awake_ >= enough) {
    awake_ = 0;
    rest_ = (has_top_ ? 7 : 4) * enough;
    ++rests_;
  }
  return false;
}

IterationLoops::Step& IterationLoops::entry(uint32_t number, uint32_t stream) {
  const uint32_t key = (number + stream * 0x9E3779B9U) | 1;
  Step* const set = steps_ + std::size_t{key >> 1} % (kSteps / kWays) * kWays;
  Step* oldest = set;
  for (Step* one = set; one != set + kWays; ++one) {
    if (one->key == key) return *one;
    if (one->needed < oldest->needed) oldest = one;
  }
  *oldest = Step{};
  oldest->key = key;
  oldest->step = number;
  oldest->born = learned_;
  return *oldest;
}

// Finds for the step in the middle of the last ones how much younger those before it are than those
// after it.
void IterationLoops::remember(uint32_t index, uint32_t stream) {
  if (stream != recent_stream_) {
    // Steps of another stream in between say nothing. The stream that launches most wins in the
    // end.
    if (recent_count_ != 0) --recent_count_;
    if (recent_count_ != 0) return;
    recent_stream_ = stream;
  }
  recent_[next_recent_++ % kRecent] = static_cast<uint16_t>(index);
  if (recent_count_ < kMostRecent) ++recent_count_;
  if (recent_count_ < kRecent) return;
  Step& middle = steps_[recent_[(next_recent_ - kAround - 1) % kRecent]];
  if (middle.good < kFewest || (middle.drop != kUnknownDrop && learned_ % 16 != 0)) return;
  uint32_t before[kAround], after[kAround];
  uint32_t youngest = 0;
  for (uint32_t i = 0; i < kAround; ++i) {
    after[i] = steps_[recent_[(next_recent_ - 1 - i) % kRecent]].born;
    before[i] = steps_[recent_[(next_recent_ - kAround - 2 - i) % kRecent]].born;
    if (before[i] > youngest) youngest = before[i];
  }
  const uint32_t next = after[kAround - 1], one_later = after[kAround - 2];
  const uint32_t young = median(before);
  const auto drop = static_cast<int32_t>(young) - static_cast<int32_t>(median(after));
  // A step is three launches, so this one and the next span the way back, and the one after does
  // not.
  const bool is_way_back = middle.born > youngest && next > middle.born && one_later < young;
  middle.drop = is_way_back ? drop : drop / 2;
}

void IterationLoops::add_distance(Step& step, uint32_t distance) {
  const auto value = static_cast<float>(distance);
  if (is_near(value, step.distance)) {
    ++step.good;
    step.distance += (value - step.distance) / 8;
  } else if (is_near(value, static_cast<float>(step.last_distance)) && 2 * step.bad >= step.good) {
    step.distance = value;  // the program does something else than before
    step.good = 1;
    step.bad = 0;
  } else {
    const bool is_top = has_top_ && step.key == top_key_;
    step.bad = static_cast<uint16_t>(step.bad + (is_top ? kTopPenalty : 1));
    if (is_top && !is_regular(step)) has_top_ = false;
  }
  step.last_distance = distance;
  if (step.good < kHalveAt && step.bad < kHalveAt) return;
  step.good /= 2;
  step.bad /= 2;
}

bool IterationLoops::note(uint32_t function) {
  if (++seen_count_ > kMostSeen) {
    for (uint64_t& word : seen_) word = 0;
    seen_count_ = 1;
  }
  seen_[function >> 26] |= 1ULL << (function >> 20 & 63);
  return true;
}

bool IterationLoops::is_regular(const Step& step) const {
  return step.distance >= kShortest && step.good >= kFewest && 16 * step.bad <= step.good &&
         static_cast<float>(needed_ - step.needed) <=
             static_cast<float>(kPatience) * step.distance + 64;
}

void IterationLoops::look_at(const Step& step) {
  if (!is_regular(step)) return;
  if (best_ >= 0) {
    const Step& best = steps_[best_];
    if (step.distance * kLonger < best.distance) return;
    const bool is_longer = step.distance > best.distance * kLonger;
    if (is_longer && best.good > kFewestLonger && step.good < kFewestLonger) return;
    if (!is_longer && step.drop <= best.drop) return;
  }
  best_ = static_cast<int>(&step - steps_);
}

// The top stays where it is unless another step is better, so that boundaries do not wander.
void IterationLoops::choose() {
  if (best_ >= 0 && is_regular(steps_[best_])) {
    if (!has_top_ || top_key_ != steps_[best_].key) ++changes_;
    top_ = best_;
    top_key_ = steps_[top_].key;
    top_step_ = steps_[top_].step;
    has_top_ = true;
  } else if (has_top_ && !is_regular(steps_[top_])) {
    has_top_ = false;
  }
  best_ = has_top_ && steps_[top_].key == top_key_ && is_regular(steps_[top_]) ? top_ : -1;
}

}  // namespace gpushare::shim
