// SPDX-License-Identifier: Apache-2.0
#include "sched/orders/turns.h"

#include <algorithm>
#include <utility>

#include "sched/orders/times.h"

// The same bits on every machine.
#pragma STDC FP_CONTRACT OFF

namespace gpushare {
namespace {

size_t class_of(const JobView& job) {
  return std::min<size_t>(static_cast<size_t>(job.priority), 2);
}

double weighted(Nanos had, Nanos has, uint32_t weight) {
  const double more = static_cast<double>(has.count()) - static_cast<double>(had.count());
  return std::max(more, 0.0) / std::max(weight, 1U);
}

}  // namespace

void TurnsPolicy::rank(std::span<Ranked> all) {
  std::swap(accounts_, last_);
  accounts_.clear();
  std::array<double, 3> least;
  least.fill(-1);
  auto old = last_.begin();
  for (const Ranked& one : all) {
    const JobView& job = *one.job;
    while (old != last_.end() && old->job < job.id) ++old;
    Account& account = accounts_.emplace_back(Account{.job = job.id, .service = job.service});
    if (old == last_.end() || old->job != job.id) continue;
    account.virtual_time = old->virtual_time + weighted(old->service, job.service, job.weight);
    account.was_ready = old->was_ready;
    double& its_class = least[class_of(job)];
    if (one.is_ready && account.was_ready && (its_class < 0 || account.virtual_time < its_class))
      its_class = account.virtual_time;
  }
  for (size_t i = 0; i < least.size(); ++i) reached_[i] = std::max(reached_[i], least[i]);
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

// The end of its turn, which may not have begun yet. After it, that of a turn more.
Time TurnsPolicy::look_again(const JobView& running, Time now) {
  if (!running.runs) return later(now, turn());
  const Time end = later(running.since, turn());
  return now < end ? end : later(now, turn());
}

}  // namespace gpushare
