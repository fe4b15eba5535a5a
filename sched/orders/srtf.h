// SPDX-License-Identifier: Apache-2.0
// `srtf`: shortest remaining time first. Of the highest class the job runs of which least is left.
// Of a job of which that is not known, the learnt Gittins index (length_mix.h) takes its place. The
// one that runs is replaced when another needs less by more than 5 ms (ten switches) and one of its
// own iterations, at most 1 s, so that equals do not alternate.
#pragma once

#include "sched/orders/length_history.h"
#include "sched/orders/order.h"

namespace gpushare {

class SrtfPolicy final : public OrderPolicy {
 public:
  static constexpr Nanos kLeastGain = std::chrono::milliseconds(5);
  // The end of a longer one is not waited for, and its program may lie about it.
  static constexpr Nanos kLongestIteration = std::chrono::seconds(1);

  // `lengths` outlives this; null: nothing is ever learnt.
  SrtfPolicy(const PolicyOptions& options, const LengthHistory* lengths)
      : OrderPolicy(options), lengths_(lengths) {}

 private:
  void rank(std::span<Ranked> all, Time) override;
  bool keeps(const Ranked& running, const Ranked& other, Time now) override;
  Time look_again(const JobView& running, Time now) override;

  const LengthMix& mix() const;

  const LengthHistory* const lengths_;
};

}  // namespace gpushare
