// SPDX-License-Identifier: Apache-2.0
// Division: who made the GPU busy in the span of one sample. Turns beside others are use, by the
// switch log. Several processes may have been alone in the span, one after the other, and of these
// the driver only knows the sum. It names a process, too, but that is the one that the GPU holds at
// the instant of the sample, whoever worked (bench/results/named.jsonl). What each did
//   at least   is what is left if all the others worked all the time that the GPU held them;
//   at most    is what is left if the others worked as little as they were lately seen to do
//              (seen_rate.h).
// What the turns beside others leave of the sum is given to each up to the least, less what may be
// noise; then as far as it is expected to work, up to the most; then up to the most; then to all
// that were there.
//   busy for 85 of 200 ms; A was held for 90, B for 10: A did 75 to 85 and B 0 to 10; if A was seen
//   to do 80, B did at most 5
// Pure.
#pragma once

#include <algorithm>
#include <span>

#include "sched/account/scaled.h"

namespace gpushare {

// So much of the span a sample may be wrong: the driver counts whole percents, and looks a little
// earlier or later; and a program works for a millisecond while it is being frozen.
inline constexpr double kNoise = 0.025;
// So much of the turns beside others the hardware may have loaded and stored programs' states: of a
// slice of 2 ms 0.144 (docs/driver-facts.md).
inline constexpr double kSwitching = 0.07;

struct Claim {
  Nanos shared{};    // the GPU held it for so long beside others, which is use
  Nanos alone{};     // and for so long alone
  Nanos expected{};  // of that it works for so much, if it goes on as before
  Nanos seen{};      // of all that time it works for so much at least, if it goes on as it was seen

  Nanos least{}, most{};  // that it did in all
  Nanos used{};           // of the time alone: what it is given

  Nanos held() const { return shared + alone; }
  Nanos most_alone() const { return std::clamp(most - shared, Nanos{}, alone); }
};

// The GPU was busy for so long of a span. Nobody is given more than it was there for.
inline void divide(Nanos busy, Nanos span, std::span<Claim> claims) {
  const Nanos noise = scaled(span, kNoise);
  Nanos held{}, alone{}, seen{};
  for (const Claim& claim : claims) {
    held += claim.held();
    alone += claim.alone;
    seen += claim.seen;
  }
  for (Claim& claim : claims) {
    claim.least = std::clamp(busy - (held - claim.held()), Nanos{}, claim.held());
    claim.most = std::clamp(busy - (seen - claim.seen), claim.least, claim.held());
  }
  // They worked all the time if no more is missing than noise and what switches take. Of those that
  // were hardly there noise would be all: then it is a tenth.
  const Nanos missing = std::min(noise, held / 10) + scaled(held - alone, kSwitching);
  const bool is_all = busy + missing >= held;
  Nanos left = is_all ? alone : busy - (held - alone);
  const auto give = [&](auto&& up_to) {
    const auto more = [&](const Claim& claim) {
      return std::max(std::min(up_to(claim), claim.alone) - claim.used, Nanos{});
    };
    Nanos all{};
    for (const Claim& claim : claims) all += more(claim);
    if (all <= Nanos{} || left <= Nanos{}) return;
    const Nanos given = std::min(left, all);
    const double part = static_cast<double>(given.count()) / static_cast<double>(all.count());
    for (Claim& claim : claims) {
      const Nanos own = scaled(more(claim), part);
      claim.used += own;
      left -= own;
    }
  };
  give([&](const Claim& claim) { return claim.least - noise - claim.shared; });
  give([](const Claim& claim) { return std::min(claim.expected, claim.most_alone()); });
  give([](const Claim& claim) { return claim.most_alone(); });
  give([](const Claim& claim) { return claim.alone; });
}

}  // namespace gpushare
