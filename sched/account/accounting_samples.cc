// SPDX-License-Identifier: Apache-2.0
// What the driver's samples tell of the use of each process.
#include <algorithm>
#include <utility>

#include "sched/account/accounting.h"
#include "sched/account/division.h"
#include "sched/account/scaled.h"

namespace gpushare {
namespace {

// Of a second: less says little of what it would do.
constexpr Nanos kLeastAlone = std::chrono::milliseconds(20);

}  // namespace

void Accounting::sample(const UtilisationSample& sample, Time now) {
  // Nothing is new, or it cannot be: the log's time would wait for it.
  if (sample.until <= sample.from || sample.until > now + kLongestSample) return;
  sampled_ = now;
  if (untold_.size() == kMostUntold) untold_.erase(untold_.begin());
  untold_.push_back(sample);
  settle();
}

// The log may be read later than the samples of the same time.
void Accounting::settle() {
  while (!untold_.empty() && untold_.front().until <= at_) {
    settle(untold_.front());
    untold_.erase(untold_.begin());
  }
}

// What the driver lists of each process is all that the GPU did, for the one that it held at the
// instant of the sample. How busy the GPU was in all is right to within noise. Of that the log
// tells what the turns were; the rest was done by those that were alone.
void Accounting::settle(const UtilisationSample& sample) {
  const Time from = sample.from, until = sample.until;
  for (auto& [pid, meter] : meters_) {
    const auto own = std::ranges::find(sample.of, pid, &Utilisation::pid);
    note_sample(meter, own == sample.of.end() ? 0 : own->sm_fraction, sample);
  }
  if (sample.busy < 0 || until - from > kLongestSample) return;
  told_ = until;

  std::vector<std::pair<Meter*, LoneUse::Told>> told;
  std::vector<Claim> claims;
  const auto claim = [&](Meter* meter, LoneUse& lone_use) {
    const LoneUse::Told& of = told.emplace_back(meter, lone_use.take(from, until)).second;
    Claim one{.shared = of.shared, .alone = of.alone, .expected = of.alone - of.at_rest};
    if (meter != nullptr) {
      one.expected = scaled(one.expected, meter->lone.rate(until));
      one.seen = meter->seen.least(one.held(), until - from, until);
    }
    claims.push_back(one);
  };
  for (auto& [pid, meter] : meters_) claim(&meter, meter.lone_use);
  for (Former& former : formers_) claim(&former.meter, former.meter.lone_use);
  claim(nullptr, strangers_);
  const Nanos busy = scaled(until - from, std::min(sample.busy, 1.0));
  divide(busy, until - from, claims);
  for (size_t i = 0; i < told.size(); ++i) {
    const auto& [meter, of] = told[i];
    if (meter == nullptr) continue;
    const Claim& own = claims[i];
    const Nanos used = own.used;
    if (residents_known_since_ <= from)
      meter->seen.note(own.least, busy, own.held(), until - from, until);
    meter->lone.sample(from, until, of.rate(used), used);
    of.spread(used, [&](Time begin, Time end, Nanos more) { correct(*meter, begin, end, more); });
    settle(*meter, of, used);
    // Also of who was not there: what the GPU did is the same for all programs of a tenant.
    meter->pending.doubt.add({.may = std::max(own.most_alone() - used, Nanos{}),
                              .own = own.shared + used,
                              .busy = busy});
  }
}

void Accounting::settle(Meter& meter, const LoneUse::Told& told, Nanos used) {
  count(meter, used);
  meter.told_alone += told.alone;
  meter.told_used += used;
  meter.pending.presumed -= told.presumed;
  meter.pending.returned += std::max(told.presumed - used, Nanos{});
}

// What the sample gives to this one: all that the GPU did, if the GPU held it then.
void Accounting::note_sample(Meter& meter, double fraction, const UtilisationSample& sample) {
  const double busy = fraction < kBusySample ? 0 : fraction;
  meter.sampled = busy;
  if (!has_log_) meter.share = busy;
  if (busy > 0) meter.signs.shown = std::max(meter.signs.shown, sample.until);
  const bool is_all_that_tells = !has_log_ || sample.busy < 0;
  if (busy > 0 && is_all_that_tells && !meter.is_frozen)
    meter.last_active = std::max(meter.last_active, sample.until);
  const Nanos time = sample.until - std::max(sample.from, meter.added);
  if (time <= Nanos{} || time > kLongestSample) return;
  meter.sampled_busy += scaled(time, busy);
  meter.sampled_time += time;
  if (meter.sampled_time >= kSampledTogether) look_at_second(meter);
}

void Accounting::look_at_second(Meter& meter) {
  const double busy = std::chrono::duration<double>(std::exchange(meter.sampled_busy, Nanos{})) /
                      std::chrono::duration<double>(std::exchange(meter.sampled_time, Nanos{}));
  Nanos frozen{};
  for (uint32_t i = 0; i < kWindowSlots; ++i) frozen += meter.slots[i].frozen;
  meter.escape.sample(busy, 1 - std::chrono::duration<double>(frozen) / kWindow);
  is_any_suspected_ |= meter.escape.is_suspected();
  // What it did of the time in which it was alone is what it would do of all if let.
  const Nanos alone = std::exchange(meter.told_alone, Nanos{});
  const Nanos used = std::exchange(meter.told_used, Nanos{});
  if (alone < kLeastAlone) return;
  const double rate = std::chrono::duration<double>(used) / alone;
  meter.sampled_rate = std::max(rate, meter.latest_rate);
  meter.latest_rate = rate;
  meter.rated = at_;
}

bool Accounting::needs_samples() const {
  const bool is_vacant = resident_ == 0 && vacant_since_ != Time::min();
  return !meters_.empty() &&
         (!has_log_ || (!is_vacant && at_ - resident_since_ > kLoneAfter) ||
          std::ranges::any_of(meters_,
                              [](const auto& entry) { return entry.second.lone_use.is_open(); }) ||
          std::ranges::any_of(
              formers_, [](const Former& former) { return former.meter.lone_use.is_open(); }));
}

double Accounting::sampled_rate(pid_t pid, Time now) const {
  const Meter* const meter = find(pid);
  const bool is_told = meter != nullptr && now - meter->rated < LoneContext::kStale;
  return is_told ? meter->sampled_rate : 1;
}

// What the window shows of a time that is past.
void Accounting::correct(Meter& meter, Time from, Time until, Nanos more) {
  for (uint32_t i = 0; i <= kWindowSlots; ++i) {
    const Time end = slot_end_ - kSlot * (kWindowSlots - i);
    const Nanos within = std::min(until, end) - std::max(from, end - kSlot);
    if (within <= Nanos{}) continue;
    const double part = std::chrono::duration<double>(within) / (until - from);
    const Nanos change = scaled(more, part);
    const Nanos least = -std::min(meter.slots[i].used, all_[i].used);
    meter.slots[i].used += std::max(change, least);
    all_[i].used += std::max(change, least);
  }
  if (more > Nanos{} && !meter.is_frozen) meter.last_active = std::max(meter.last_active, until);
}

}  // namespace gpushare
