// SPDX-License-Identifier: Apache-2.0
#include "sched/account/lone_use.h"

#include <utility>

#include "sched/account/scaled.h"

namespace gpushare {
namespace {

double ratio(Nanos a, Nanos b) {
  return static_cast<double>(a.count()) / static_cast<double>(b.count());
}

}  // namespace

LoneUse::Stretch LoneUse::Stretch::cut(Time at) {
  Stretch first = *this;
  const double part = ratio(at - from, until - from);
  first.until = at;
  first.resident = scaled(resident, part);
  first.presumed = scaled(presumed, part);
  resident -= first.resident;
  presumed -= first.presumed;
  from = at;
  return first;
}

Nanos LoneUse::add_alone(Time from, Time until, double rate) {
  const Nanos presumed = until > from ? scaled(until - from, rate) : Nanos{};
  add({from, until, until - from, presumed, rate, Kind::kByRate});
  return presumed;
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
      last.presumed += stretch.presumed;
      return;
    }
  }
  stretches_.push_back(stretch);
}

void LoneUse::absorb(const LoneUse& ended) {
  for (Stretch stretch : ended.stretches_) {
    if (stretch.kind == Kind::kByRate) {
      stretch.kind = Kind::kShared;
      stretch.presumed = {};
    }
    stretches_.push_back(stretch);
  }
  std::ranges::sort(stretches_, {}, &Stretch::from);
}

LoneUse::Told LoneUse::take(Time from, Time until) {
  Told told;
  std::vector<Stretch> rest;
  const auto is_told = [&](const Stretch& stretch) {
    (stretch.kind == Kind::kShared ? told.shared : told.alone) += stretch.resident;
    told.presumed += stretch.presumed;
    if (stretch.kind == Kind::kByWord) told.at_rest += stretch.resident;
    if (stretch.kind != Kind::kShared) told.alone_in.push_back(stretch);
  };
  for (Stretch stretch : stretches_) {
    if (stretch.from < from && stretch.until > from) rest.push_back(stretch.cut(from));
    if (stretch.from < until && stretch.until > until) is_told(stretch.cut(until));
    if (stretch.from >= from && stretch.until <= until) {
      is_told(stretch);
    } else {
      rest.push_back(stretch);
    }
  }
  stretches_ = std::move(rest);
  return told;
}

double LoneUse::Told::rate(Nanos used) const { return alone < kLeast ? -1 : ratio(used, alone); }

// What is missing is spread over what was not presumed, and what is too much over what was.
void LoneUse::Told::spread(
    Nanos used, const std::function<void(Time from, Time until, Nanos more)>& correct) const {
  const Nanos more = used - presumed;
  const Nanos over = more > Nanos{} ? alone - presumed : presumed;
  for (const Stretch& stretch : alone_in) {
    const Nanos weight = more > Nanos{} ? stretch.resident - stretch.presumed : stretch.presumed;
    if (weight > Nanos{} && more != Nanos{})
      correct(stretch.from, stretch.until, scaled(more, ratio(weight, over)));
  }
}

Nanos LoneUse::conclude() {
  Nanos sum{};
  for (Stretch& stretch : stretches_) {
    if (stretch.kind == Kind::kShared) continue;
    sum += stretch.presumed;
    stretch.kind = Kind::kShared;
    stretch.resident = std::exchange(stretch.presumed, Nanos{});
  }
  return sum;
}

void LoneUse::Untold::add(const Stretch& stretch) {
  presumed += stretch.presumed;
  if (stretch.kind == Kind::kByRate) spared_by_rate += stretch.resident - stretch.presumed;
  if (stretch.kind == Kind::kByWord) spared_by_word += stretch.resident;
}

LoneUse::Untold LoneUse::drop(size_t count) {
  Untold untold;
  const auto end = stretches_.begin() + static_cast<std::ptrdiff_t>(count);
  std::for_each(stretches_.begin(), end, [&](const Stretch& stretch) { untold.add(stretch); });
  stretches_.erase(stretches_.begin(), end);
  return untold;
}

LoneUse::Untold LoneUse::forget(Time now) {
  const auto kept = std::ranges::find_if(
      stretches_, [&](const Stretch& stretch) { return now - stretch.until < kKept; });
  const auto old = static_cast<size_t>(kept - stretches_.begin());
  return drop(std::max(old, stretches_.size() - std::min(stretches_.size(), kMost)));
}

}  // namespace gpushare
