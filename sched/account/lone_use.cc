// SPDX-License-Identifier: Apache-2.0
#include "sched/account/lone_use.h"

#include "sched/account/scaled.h"

namespace gpushare {
namespace {

double ratio(Nanos a, Nanos b) {
  return static_cast<double>(a.count()) / static_cast<double>(b.count());
}

}  // namespace

Nanos LoneUse::Stretch::charged() const { return scaled(resident, rate); }

LoneUse::Stretch LoneUse::Stretch::cut(Time at) {
  Stretch first = *this;
  first.until = at;
  first.resident = scaled(resident, ratio(at - from, until - from));
  resident -= first.resident;
  from = at;
  return first;
}

void LoneUse::add(const Stretch& stretch) {
  if (stretch.until <= stretch.from) return;
  if (!stretches_.empty() && stretches_.back().kind == stretch.kind) {
    Stretch& last = stretches_.back();
    const bool is_one = stretch.kind == Kind::kShared
                            ? stretch.until - last.from <= kJoined
                            : last.until == stretch.from && last.rate == stretch.rate;
    if (is_one) {
      last.until = stretch.until;
      last.resident += stretch.resident;
      return;
    }
  }
  stretches_.push_back(stretch);
}

Nanos LoneUse::shared(Time from, Time until) const {
  Nanos sum{};
  for (const Stretch& stretch : stretches_) {
    const Nanos within = std::min(until, stretch.until) - std::max(from, stretch.from);
    if (stretch.kind != Kind::kShared || within <= Nanos{}) continue;
    sum += scaled(stretch.resident, ratio(within, stretch.until - stretch.from));
  }
  return sum;
}

LoneUse::Told LoneUse::settle(
    Time from, Time until, Nanos busy,
    const std::function<void(Time from, Time until, Nanos more)>& correct) {
  std::vector<Stretch> told, rest;
  for (Stretch stretch : stretches_) {
    if (stretch.from < from && stretch.until > from) rest.push_back(stretch.cut(from));
    if (stretch.from < until && stretch.until > until) told.push_back(stretch.cut(until));
    const bool is_told = stretch.from >= from && stretch.until <= until;
    (is_told ? told : rest).push_back(stretch);
  }
  stretches_ = std::move(rest);
  Told sum;
  Nanos shared{}, charged{};
  for (const Stretch& stretch : told) {
    (stretch.kind == Kind::kShared ? shared : sum.alone) += stretch.resident;
    if (stretch.kind != Kind::kShared) charged += stretch.charged();
  }
  if (sum.alone == Nanos{}) return sum;
  const Nanos resident = shared + sum.alone;
  const double full = ratio(resident, until - from) < kWhole ? kSaturatedFrozen : kSaturated;
  const bool is_full = ratio(busy, resident) >= full;
  sum.used = is_full ? sum.alone : std::clamp(busy - shared, Nanos{}, sum.alone);
  if (sum.alone >= kLeast) sum.rate = ratio(sum.used, sum.alone);
  // What is missing is spread over what was not charged, and what is too much over what was.
  const Nanos more = sum.used - charged;
  const Nanos over = more > Nanos{} ? sum.alone - charged : charged;
  for (const Stretch& stretch : told) {
    if (stretch.kind == Kind::kShared || more == Nanos{}) continue;
    const Nanos is_charged = stretch.charged();
    const Nanos weight = more > Nanos{} ? stretch.resident - is_charged : is_charged;
    if (weight > Nanos{}) correct(stretch.from, stretch.until, scaled(more, ratio(weight, over)));
  }
  return sum;
}

LoneUse::Spared LoneUse::drop(size_t count) {
  Spared spared;
  const auto end = stretches_.begin() + static_cast<std::ptrdiff_t>(count);
  std::for_each(stretches_.begin(), end, [&](const Stretch& stretch) {
    if (stretch.kind == Kind::kByRate) spared.by_rate += stretch.resident - stretch.charged();
    if (stretch.kind == Kind::kByWord) spared.by_word += stretch.resident;
  });
  stretches_.erase(stretches_.begin(), end);
  return spared;
}

LoneUse::Spared LoneUse::forget(Time now) {
  const auto kept = std::ranges::find_if(
      stretches_, [&](const Stretch& stretch) { return now - stretch.until < kKept; });
  const auto old = static_cast<size_t>(kept - stretches_.begin());
  return drop(std::max(old, stretches_.size() - std::min(stretches_.size(), kMost)));
}

}  // namespace gpushare
