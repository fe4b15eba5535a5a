// SPDX-License-Identifier: Apache-2.0
// TokenTimes: how long the recent iterations of one tenant took, process by process, as its
// programs say in their slots. Of a tenant that decodes these are the gaps between its tokens, on
// the SM groups that it has, and from them comes how long a step takes on other numbers of groups
// (ServiceCurve). An iteration during which the groups changed counts for none of them. Pure; the
// agent's one thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>

#include "sched/policy/policy.h"
#include "sched/slo/service_curve.h"

namespace gpushare {

class TokenTimes {
 public:
  static constexpr std::size_t kKept = 64;    // of the last ones
  static constexpr std::size_t kFewest = 16;  // with fewer nothing is said

  // At every step of the agent. `processes`: those of the tenant with the shim; `groups`: that it
  // runs on, 0: unknown, and nothing is counted. While it lends, what it has counts for nothing: it
  // has its own again before it goes on.
  void look(uint32_t groups, std::span<const ProcessView* const> processes);

  // Only those on so many groups are kept from now on; those of before are forgotten.
  void keep(uint32_t groups);
  void forget() { count_ = 0; }
  std::size_t count() const { return count_; }
  // Of those that are kept, in seconds; < 0: fewer than kFewest.
  double quantile(double part) const;
  double mean() const;
  // Mean time from arrival to end of the last iterations, on whatever groups; < 0: unknown.
  double response() const { return response_; }

  const ServiceCurve& curve() const { return curve_; }
  ShimSource source() const { return source_; }
  uint32_t confidence() const { return confidence_; }
  // The longest of its processes' mean periods; zero: unknown.
  Nanos period() const { return period_; }
  // The shortest target that one of its programs asks for; zero: none does.
  Nanos asked() const { return asked_; }

 private:
  struct Known {
    IterationsView last;
    bool was_moved = true;  // since the last iteration that ended
  };
  static constexpr uint32_t kEpoch = 8;        // iterations of one point of the curve
  static constexpr uint64_t kMostAtOnce = 16;  // that are counted of one look
  static constexpr double kFollow = 0.25;      // weight of a new response in the mean

  void note(const IterationsView& before, const IterationsView& now);

  std::map<ProcessId, Known> processes_;
  std::array<double, kKept> times_{};
  std::size_t count_ = 0, next_ = 0;
  uint32_t groups_ = 0, kept_ = 0;
  double epoch_sum_ = 0;
  uint32_t epoch_count_ = 0;
  ServiceCurve curve_;
  double response_ = -1;
  ShimSource source_ = ShimSource::kNone;
  uint32_t confidence_ = 0;
  Nanos period_{}, asked_{};
};

}  // namespace gpushare
