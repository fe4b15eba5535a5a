// SPDX-License-Identifier: Apache-2.0
// OrderPolicy: what all policies that order jobs have in common. One job has the turn; the others
// wait. The highest class goes before any order, and within a class a job that has waited for the
// operator's patience before the order gets one turn, first come first served. A job that does not
// want the GPU lends its turn to the next in order. What is left to a policy is the order itself,
// and how long the one that runs may keep its turn.
//
// A job keeps its turn while nobody wants the GPU, so that it need not wait when it goes on.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "sched/orders/caps.h"
#include "sched/policy/entry.h"

namespace gpushare {

inline constexpr PolicyOption kTurnOption = {"turn_ms", 1, 10'000, 25,
                                             "shortest turn, rounded up to whole iterations"};
inline constexpr PolicyOption kGraceOption = {
    "grace_ms", 0, 10'000, 0,
    "how long a boundary is waited for before a job is stopped where it is; 0: twice its mean "
    "iteration, 20 to 1000"};
inline constexpr PolicyOption kPatienceOption = {
    "patience_s", 0, 86'400, 0,
    "how long a job waits at most for one turn, whatever the order says; 0: without end"};

inline constexpr std::array<PolicyOption, 3> kOrderOptions = {
    {kTurnOption, kGraceOption, kPatienceOption}};

class OrderPolicy : public Policy {
 public:
  Plan plan(const Snapshot& snapshot) final;

 protected:
  explicit OrderPolicy(const PolicyOptions& options);

  struct Ranked {
    const JobView* job;
    double key = 0;          // the smallest goes first; equal ones by arrival, then by id
    bool is_ready = false;   // it wants the GPU, and nothing but its turn keeps it from it
    bool is_patient = true;  // false: it has waited so long that it gets a turn first
  };

  // Sets the keys. `all` is ascending by id.
  virtual void rank(std::span<Ranked> all, Time now) = 0;
  // Whether `running`, which was given the turn last, keeps it although `other`, of the same class,
  // is before it. Requires: both are ready.
  virtual bool keeps(const Ranked& running, const Ranked& other, Time now) = 0;
  // When rank() or keeps() may say something else although nothing happens but that `running` runs;
  // Time::max(): never.
  virtual Time look_again(const JobView& running, Time now) = 0;

  Nanos turn() const { return turn_; }

 private:
  void collect(const Snapshot& snapshot, Plan& plan);
  const Ranked& choose(Time now, Plan& plan);
  void tell(Time now, const Ranked& chosen, Plan& plan) const;

  const Nanos turn_, grace_, patience_;
  JobCaps caps_;
  uint64_t chosen_ = 0;            // the job that was given the turn last
  bool is_patience_turn_ = false;  // by the patience rule, so that it lasts turn_ at least
  std::vector<Ranked> ranked_;     // of the present call; a member to keep its memory
};

}  // namespace gpushare
