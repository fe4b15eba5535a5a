// SPDX-License-Identifier: Apache-2.0
#include "sched/orders/turns.h"

#include <algorithm>
#include <utility>

#include "sched/orders/times.h"

// The same bits on every machine.
#pragma STDC FP_CONTRACT OFF

namespace gpushare {
namespace {

constexpr double kLeastWeight = 1e-6;
// Who has had its turn and is still the first is looked at again after so long at the earliest.
constexpr Nanos kShortestLook = std::chrono::milliseconds(1);

size_t class_of(const JobView& job) {
  return std::min<size_t>(static_cast<size_t>(job.priority), 2);
}

double weighted(Nanos time, double weight) {
  return static_cast<double>(std::max(time, Nanos{}).count()) / std::max(weight, kLeastWeight);
}

}  // namespace

void TurnsPolicy::rank(std::span<Ranked> all, Time now) {
  const Time before = std::exchange(last_now_, now);
  std::swap(accounts_, last_);
  accounts_.clear();
  std::array<double, 3> least, most;
  least.fill(-1);
  most.fill(0);
  auto old = last_.begin();
  for (const Ranked& one : all) {
    const JobView& job = *one.job;
    while (old != last_.end() && old->job < job.id) ++old;
    Account& account = accounts_.emplace_back(
        Account{.job = job.id, .priority = class_of(job), .charged = Time(job.service)});
    // In another class it begins as one that comes: what it has had there says nothing here.
    if (old == last_.end() || old->job != job.id || old->priority != account.priority) continue;
    const Nanos turn = job.runs ? elapsed(std::max(job.since, before), now) : Nanos{};
    account.charged = std::max(later(old->charged, turn), Time(job.service));
    account.virtual_time =
        old->virtual_time + weighted(elapsed(old->charged, account.charged), job.weight);
    account.was_ready = old->was_ready;
    double& its_most = most[class_of(job)];
    its_most = std::max(its_most, account.virtual_time);
    double& its_class = least[class_of(job)];
    if (one.is_ready && account.was_ready && (its_class < 0 || account.virtual_time < its_class))
      its_class = account.virtual_time;
  }
  // While nobody wants the GPU, as far as that can be seen, who is served may work all the same
  // (one kernel that runs for long). It has not used up what those who come will get.
  for (size_t i = 0; i < least.size(); ++i)
    reached_[i] = std::max(reached_[i], least[i] < 0 ? most[i] : least[i]);
  for (size_t i = 0; i < all.size(); ++i) {
    Account& account = accounts_[i];
    if (all[i].is_ready && !std::exchange(account.was_ready, all[i].is_ready))
      account.virtual_time = std::max(account.virtual_time, reached_[class_of(*all[i].job)]);
    account.was_ready = all[i].is_ready;
    all[i].key = account.virtual_time;
  }
}

bool TurnsPolicy::keeps(const Ranked& running, const Ranked&, Time now) {
  return !running.job->runs || now < later(running.job->since, turn());
}

// The end of its turn, which may not have begun yet. After it, when it will have caught up with the
// next one, so that a turn that was too long costs the others no whole turn more.
Time TurnsPolicy::look_again(const JobView& running, Time now) {
  if (!running.runs) return later(now, turn());
  const Time end = later(running.since, turn());
  return now < end ? end : later(now, std::clamp(lead(running), kShortestLook, turn()));
}

// How much of the GPU's time `running` may have before it is no longer the first of its class, as
// of the last rank(). The turn: there is no other.
Nanos TurnsPolicy::lead(const JobView& running) const {
  double own = 0, next = -1;
  for (const Account& account : accounts_) {
    if (account.job == running.id)
      own = account.virtual_time;
    else if (account.was_ready && account.priority == class_of(running) &&
             (next < 0 || account.virtual_time < next))
      next = account.virtual_time;
  }
  if (next < 0) return turn();
  const double lead = (next - own) * std::max(running.weight, kLeastWeight);
  // A view of another class than rank() saw may be any distance behind.
  if (lead <= 0) return Nanos{};
  return lead >= static_cast<double>(turn().count()) ? turn() : Nanos(static_cast<int64_t>(lead));
}

}  // namespace gpushare
