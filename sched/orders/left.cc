// SPDX-License-Identifier: Apache-2.0
#include "sched/orders/left.h"

#include <algorithm>

namespace gpushare {
namespace {

constexpr int kTolerance = 10;  // a tenth of the length
constexpr int kOfIterations = 2;
constexpr uint64_t kOfOne = 5;
// By so much at least a job passes its length before that counts as false. Who says a length does
// not count what a program's start takes, which may go on in the first turn.
constexpr Nanos kOfAWord = std::chrono::seconds(2);
constexpr Nanos kOfALesson = std::chrono::milliseconds(100);

Nanos product(uint64_t count, Nanos each) {
  Nanos::rep all = 0;
  return __builtin_mul_overflow(count, each.count(), &all) ? Nanos::max() : Nanos(all);
}

// What is left of `length`; unknown when the job has outlived it. What it has received includes
// what being stopped and let go has cost it, so that a word which is exact may be passed a little
// before the end.
Left rest(Nanos length, Nanos service, Nanos start, LeftSource source) {
  service = std::max(service, Nanos{});
  length = std::max(length, Nanos{});
  const Nanos worked = service - std::clamp(start, Nanos{}, service);
  const bool is_said = source == LeftSource::kSaid;
  const Nanos passed = (is_said ? service : worked) - length;
  if (passed >= std::max(length / kTolerance, is_said ? kOfAWord : kOfALesson)) return {};
  return {std::max(length - worked, Nanos{}), source};
}

}  // namespace

// A source that has been outlived does not fall back on a less certain one: the job is not what it
// seemed to be.
Left left_of(const KnownLength& known) {
  if (known.iterations > 0 && known.period > Nanos{}) {
    const bool says_more = known.beyond >= std::max(known.promised / kOfIterations, kOfAWord);
    const bool stands =
        known.since_end >= kOfAWord && known.since_end - kOfAWord >= product(kOfOne, known.period);
    if (known.ended >= known.iterations || says_more || stands) return {};
    return {product(known.iterations - known.ended, known.period), LeftSource::kAnnounced};
  }
  if (known.length > Nanos{})
    return rest(known.length, known.service, known.start, LeftSource::kSaid);
  if (known.learnt) return rest(*known.learnt, known.service, known.start, LeftSource::kLearnt);
  return {};
}

}  // namespace gpushare
