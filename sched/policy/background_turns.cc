// SPDX-License-Identifier: Apache-2.0
#include "sched/policy/background_turns.h"

#include <algorithm>
#include <limits>

namespace gpushare {
namespace {
constexpr int kLongestTurn = 4;  // in lengths, of time
}

BackgroundTurns::Turn BackgroundTurns::next(Time now, std::span<const Candidate> candidates) {
  ++call_;
  size_t wanting = 0;
  Priority contending = Priority::kIdle;
  for (const Candidate& candidate : candidates) {
    if (candidate.wants_gpu) contending = std::max(contending, candidate.priority);
  }
  const Candidate* current = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.process == holder_) current = &candidate;
    if (candidate.wants_gpu && candidate.priority == contending) ++wanting;
  }
  if (wanting == 0) {
    if (!current && !candidates.empty()) current = &candidates.front();
    holder_ = current ? std::optional(current->process) : std::nullopt;
    return {.holder = holder_, .is_contended = false, .ends = Time::max()};
  }

  charge(candidates, contending);
  const bool may_stay = current && current->wants_gpu && current->priority == contending;
  if (may_stay) turn_used_ += current->used;
  const bool is_over = turn_used_ >= length_ || now - turn_began_ >= kLongestTurn * length_;
  if (!may_stay || is_over) {
    holder_ = least_served(candidates, contending)->process;
    turn_used_ = Nanos::zero();
    turn_began_ = now;
  }
  const bool is_contended =
      std::ranges::count_if(candidates, &Candidate::wants_gpu) > 1;  // a lower class waits, too
  return {.holder = holder_,
          .is_contended = is_contended,
          .ends = wanting > 1 ? now + (length_ - turn_used_) : Time::max()};
}

void BackgroundTurns::charge(std::span<const Candidate> candidates, Priority contending) {
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) {
    if (!candidate.wants_gpu || candidate.priority != contending) continue;
    Account& account = account_[candidate.process];
    // One that did not contend lately has no claim to what it left unused.
    if (account.last_call + 1 != call_) account.per_weight = std::max(account.per_weight, floor_);
    account.last_call = call_;
    account.per_weight += static_cast<double>(candidate.used.count()) / candidate.weight;
    least = std::min(least, account.per_weight);
  }
  floor_ = std::max(floor_, least);
}

const BackgroundTurns::Candidate* BackgroundTurns::least_served(
    std::span<const Candidate> candidates, Priority contending) const {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates) {
    if (!candidate.wants_gpu || candidate.priority != contending) continue;
    if (!best || account_[candidate.process].per_weight < account_[best->process].per_weight) {
      best = &candidate;
    }
  }
  return best;
}

}  // namespace gpushare
