// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/who_runs.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

namespace gpushare {
namespace {

class Choice {
 public:
  Choice(Time now, std::span<const JobOrder> orders, std::span<const Contender> contenders)
      : now_(now), contenders_(contenders), is_taken_(contenders.size(), false) {
    lists_.reserve(orders.size());
    for (const JobOrder& order : orders) lists_.push_back({.order = &order, .left = order.room()});
  }

  // Chooses among those that `may_run`, for as many as there is room left.
  template <typename MayRun>
  void choose(const MayRun& may_run) {
    for (List& list : lists_) list.at = 0;
    do {
      for (List& list : lists_) list.first = first_of(list, may_run);
    } while (take_undisputed() || take_disputed());
  }

  std::vector<uint64_t> chosen() const {  // ascending
    std::vector<uint64_t> chosen;
    for (std::size_t i = 0; i < contenders_.size(); ++i)
      if (is_taken_[i]) chosen.push_back(contenders_[i].id);
    return chosen;
  }

 private:
  // One GPU's.
  struct List {
    const JobOrder* order;
    std::size_t left;                  // for how many jobs there is room
    std::size_t at = 0;                // who is before this one cannot run any more
    const Contender* first = nullptr;  // of those that may run and for which there is room
  };

  static bool is_on(const Contender& job, const List& list) {
    return (job.gpus & uint64_t{1} << list.order->gpu()) != 0;
  }
  bool is_taken(const Contender& job) const {
    return is_taken_[static_cast<std::size_t>(&job - contenders_.data())];
  }
  bool fits(const Contender& job) const {
    return std::ranges::all_of(
        lists_, [&](const List& list) { return !is_on(job, list) || list.left > 0; });
  }

  // Whoever is passed over stays so: room and the jobs that are not taken only get fewer.
  template <typename MayRun>
  const Contender* first_of(List& list, const MayRun& may_run) const {
    const std::span<const JobDecision> jobs = list.order->jobs();
    for (; list.left > 0 && list.at < jobs.size(); ++list.at) {
      const JobDecision& decision = jobs[list.at];
      const auto job = std::ranges::lower_bound(contenders_, decision.job, {}, &Contender::id);
      if (job != contenders_.end() && job->id == decision.job && !is_taken(*job) &&
          may_run(*job, decision) && fits(*job))
        return &*job;
    }
    return nullptr;
  }

  // A plan that does not know the job yet has nobody before it.
  bool is_first_everywhere(const Contender& job) const {
    return std::ranges::all_of(lists_, [&](const List& list) {
      return !is_on(job, list) || list.first == &job || list.order->place(job.id) == 0;
    });
  }

  void take(const Contender& job) {
    is_taken_[static_cast<std::size_t>(&job - contenders_.data())] = true;
    for (List& list : lists_)
      if (is_on(job, list)) --list.left;
  }

  // Those that come first on all of their GPUs, so that no two of them need the same one. Returns
  // whether there was any.
  bool take_undisputed() {
    bool has_taken = false;
    for (const List& list : lists_) {
      if (list.first == nullptr || is_taken(*list.first) || !fits(*list.first) ||
          !is_first_everywhere(*list.first))
        continue;
      take(*list.first);
      has_taken = true;
    }
    return has_taken;
  }

  bool take_disputed() {
    const auto rank = [&](const List& list) {
      const Contender& job = *list.first;
      const bool goes_on = job.runs && now_ - job.since < list.order->find(job.id)->turn;
      return std::tuple(-static_cast<int>(job.priority), !goes_on, job.runs, job.since, job.id);
    };
    const List* best = nullptr;
    for (const List& list : lists_)
      if (list.first != nullptr && (best == nullptr || rank(list) < rank(*best))) best = &list;
    if (best == nullptr) return false;
    take(*best->first);
    return true;
  }

  const Time now_;
  const std::span<const Contender> contenders_;
  std::vector<bool> is_taken_;
  std::vector<List> lists_;
};

}  // namespace

std::vector<uint64_t> who_runs(Time now, std::span<const JobOrder> orders,
                               std::span<const Contender> contenders) {
  Choice choice(now, orders, contenders);
  choice.choose([](const Contender& job, const JobDecision&) { return job.wants_gpu; });
  choice.choose([](const Contender&, const JobDecision& decision) { return decision.runs; });
  return choice.chosen();
}

}  // namespace gpushare
