// SPDX-License-Identifier: Apache-2.0
// What the driver's samples tell of the use of each process.
#include <algorithm>
#include <utility>

#include "sched/account/accounting.h"
#include "sched/account/scaled.h"

namespace gpushare {
namespace {

constexpr double kLeastThawed = 0.05;

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

// For how long the GPU was busy. While nobody is there at all, the driver does not look.
Nanos Accounting::busy_in(const UtilisationSample& sample) const {
  double all = 0;
  for (const Utilisation& each : sample.of) all += each.sm_fraction;
  if (all < kBusySample) return {};
  Time from = sample.from;
  const bool has_strangers = std::ranges::any_of(
      sample.of, [&](const Utilisation& one) { return find(one.pid) == nullptr; });
  if (sample.tick > Nanos{} && peopled_since_ > from && peopled_since_ < sample.until &&
      !has_strangers) {
    const auto looks = (sample.until - peopled_since_ + sample.tick - Nanos(1)) / sample.tick;
    from = std::max(from, sample.until - looks * sample.tick);
  }
  return scaled(sample.until - from, std::min(all, 1.0));
}

// Who shares the GPU is not told apart: the driver gives each of its looks at the GPU to one
// process. So it is the sum of all that counts, less the turns that the log tells of. If others did
// less in these, it was this one's use: caps count it.
void Accounting::settle(const UtilisationSample& sample) {
  const Time from = sample.from, until = sample.until;
  lists_anybody_ = lists_anybody_ || !sample.of.empty();
  const Nanos busy = busy_in(sample);
  const bool tells = until - from <= kLongestSample;
  Nanos shared{};
  if (tells)
    for (const auto& [pid, meter] : meters_) shared += meter.lone_use.shared(from, until);
  for (auto& [pid, meter] : meters_) {
    const auto own = std::ranges::find(sample.of, pid, &Utilisation::pid);
    const bool is_listed = own != sample.of.end();
    note_sample(meter, is_listed ? own->sm_fraction : 0, sample);
    // It may have come too late for this sample, or this driver lists nobody.
    const bool is_told = is_listed || (lists_anybody_ && meter.added <= from - kLongestSample);
    if (!tells || !is_told) continue;
    const Nanos turns = meter.lone_use.shared(from, until);
    const LoneUse::Told told = meter.lone_use.settle(
        std::max(from, meter.added), until, std::max(busy - (shared - turns), Nanos{}),
        [&](Time begin, Time end, Nanos more) { correct(meter, begin, end, more); });
    meter.lone.sample(from, until, told.rate, told.used);
    const Nanos most = std::clamp(busy - turns, Nanos{}, told.alone);
    meter.pending.excused += std::max(most - told.used, Nanos{});
  }
}

// What was given to this one.
void Accounting::note_sample(Meter& meter, double fraction, const UtilisationSample& sample) {
  const double busy = fraction < kBusySample ? 0 : fraction;
  meter.sampled = busy;
  if (!has_log_) meter.share = busy;
  if (busy > 0) meter.signs.shown = std::max(meter.signs.shown, sample.until);
  if (busy > 0 && !meter.is_frozen) meter.last_active = std::max(meter.last_active, sample.until);
  const Nanos time = sample.until - std::max(sample.from, meter.added);
  if (time <= Nanos{} || time > kLongestSample) return;
  meter.sampled_busy += scaled(time, busy);
  meter.sampled_time += time;
  if (meter.sampled_time >= kSampledTogether) look_at_second(meter);
}

// What it did of the time in which it was thawed is what it would do of all if let:
//   capped at 30 % and saturating it is sampled at 0.27, thawed for 0.3: 0.9, which is all
void Accounting::look_at_second(Meter& meter) {
  const double busy = std::chrono::duration<double>(std::exchange(meter.sampled_busy, Nanos{})) /
                      std::chrono::duration<double>(std::exchange(meter.sampled_time, Nanos{}));
  Nanos frozen{};
  for (uint32_t i = 0; i < kWindowSlots; ++i) frozen += meter.slots[i].frozen;
  const double thawed = 1 - std::chrono::duration<double>(frozen) / kWindow;
  meter.escape.sample(busy, thawed);
  is_any_suspected_ |= meter.escape.is_suspected();
  double rate = thawed > kLeastThawed ? std::min(1.0, busy / thawed) : 1.0;
  if (rate >= (thawed < 1 ? LoneUse::kSaturatedFrozen : LoneUse::kSaturated)) rate = 1.0;
  meter.sampled_rate = std::max(rate, meter.latest_rate);
  meter.latest_rate = rate;
  meter.rated = at_;
}

bool Accounting::needs_samples() const {
  const bool is_vacant = resident_ == 0 && vacant_since_ != Time::min();
  return !meters_.empty() && (!has_log_ || (!is_vacant && at_ - resident_since_ > kLoneAfter) ||
                              std::ranges::any_of(meters_, [](const auto& entry) {
                                return entry.second.lone_use.is_open();
                              }));
}

double Accounting::sampled_rate(pid_t pid, Time now) const {
  const Meter* const meter = find(pid);
  const bool is_told = meter != nullptr && now - meter->rated < LoneContext::kStale;
  return is_told ? meter->sampled_rate : 1;
}

// Of a time that is past.
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
  if (more >= Nanos{}) return count(meter, more);
  const Nanos back = std::min(-more, meter.pending.used);
  meter.pending.used -= back;
  meter.total -= back;
  meter.credit += -more - back;
}

}  // namespace gpushare
