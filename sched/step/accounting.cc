// SPDX-License-Identifier: Apache-2.0
#include "sched/step/accounting.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpushare {
namespace {

constexpr double kBusySample = 0.02;  // below, a sample is noise
constexpr Nanos kWindow = Accounting::kSlot * Accounting::kWindowSlots;
constexpr Nanos kLeastWindow = 2 * Accounting::kSlot;

uint16_t permille(double share) {
  return static_cast<uint16_t>(std::lround(std::clamp(share, 0.0, 1.0) * 1000));
}

}  // namespace

Accounting::Meter* Accounting::find(pid_t pid) {
  const auto at = meters_.find(pid);
  return at == meters_.end() ? nullptr : &at->second;
}

const Accounting::Meter* Accounting::find(pid_t pid) const {
  const auto at = meters_.find(pid);
  return at == meters_.end() ? nullptr : &at->second;
}

void Accounting::add(pid_t pid, Time now) {
  const auto [at, is_new] = meters_.try_emplace(pid);
  if (!is_new) return;
  at->second.added = now;
  at->second.last_active = now;  // it was made to do something
  at->second.history.fill(0xFFFF);
}

void Accounting::end(pid_t pid, Time at) {
  if (Meter* meter = find(pid)) meter->ended = at;
}

void Accounting::remove(pid_t pid) {
  meters_.erase(pid);
  std::erase_if(boundaries_, [pid](const Boundary& boundary) { return boundary.pid == pid; });
  if (resident_ == pid) resident_ = 0;
}

void Accounting::set_slice(pid_t pid, Nanos slice) {
  if (Meter* meter = find(pid)) meter->slice = slice;
}

void Accounting::set_frozen(pid_t pid, bool is_frozen, Time at) {
  // Calls come in the order of time, but for one that was measured a little earlier.
  const auto after = std::upper_bound(boundaries_.begin(), boundaries_.end(), at,
                                      [](Time t, const Boundary& b) { return t < b.at; });
  boundaries_.insert(after, {at, pid, is_frozen});
}

void Accounting::consume(const SwitchBatch& batch) {
  records_ += batch.records.size();
  if (batch.lost > 0) {
    lost_ += batch.lost;
    const Time resumes = batch.records.empty() ? batch.complete_until : batch.records.front().time;
    if (is_started_ && resumes > at_ && !batch.records.empty()) {
      unattributed_ += resumes - at_;
      resident_ = 0;
    }
    is_turn_whole_ = false;
    vacant_since_ = Time::min();
  }
  for (const SwitchRecord& record : batch.records) {
    advance(record.time);
    apply(record);
  }
  advance(batch.complete_until);
}

void Accounting::advance(Time to) {
  while (!boundaries_.empty() && boundaries_.front().at <= to) {
    const Boundary boundary = boundaries_.front();
    boundaries_.erase(boundaries_.begin());
    advance(boundary.at);
    apply(boundary);
  }
  if (!is_started_) {
    is_started_ = true;
    at_ = to;
    resident_since_ = to;
    slot_end_ = to + kSlot;
  }
  while (at_ < to) {
    const Time until = std::min(to, slot_end_);
    charge(at_, until);
    at_ = until;
    if (at_ == slot_end_) close_slot();
  }
}

void Accounting::charge(Time from, Time to) {
  const Nanos span = to - from;
  for (auto& [pid, meter] : meters_)
    if (meter.is_frozen) meter.slots.back().frozen += span;
  if (!is_resident_known_ || resident_ == 0) return;

  Nanos used = span;
  if (Meter* meter = find(resident_)) {
    if (meter->is_frozen) return;
    if (to - resident_since_ > kLoneAfter) {
      if (from >= meter->ended) return;
      const double rate = meter->lone.rate(to);
      used = Nanos(std::llround(static_cast<double>(span.count()) * rate));
      if (rate > 0) meter->last_active = to;
    } else {
      meter->last_active = to;
    }
    const Nanos switching = std::min(used, meter->switching);
    meter->switching -= switching;
    all_.back().switching += switching;
    used -= switching;
    meter->total += used;
    meter->pending.used += used;
    meter->slots.back().used += used;
  }
  all_.back().used += used;
}

void Accounting::close_slot() {
  slot_end_ += kSlot;
  ++slots_closed_;
  const bool is_second = slots_closed_ % kWindowSlots == 0;
  const auto shift = [](Slots& slots) {
    std::move(slots.begin() + 1, slots.end(), slots.begin());
    slots.back() = {};
  };
  shift(all_);
  for (auto& [pid, meter] : meters_) {
    shift(meter.slots);
    if (!is_second) continue;
    std::move(meter.history.begin() + 1, meter.history.end(), meter.history.begin());
    const double share = share_of(meter);
    meter.history.back() = share < 0 ? 0xFFFF : permille(share);
  }
  round_ = round();
  if (at_ - resident_since_ > kLoneAfter) infer_resident();
}

// How long the hardware takes to come back to one that has work, if all that ran in the window have
// some and use their slices.
Nanos Accounting::round() const {
  Nanos round{};
  for (const auto& [pid, meter] : meters_) {
    const bool has_run = std::ranges::any_of(
        meter.slots, [](const Slot& slot) { return slot.used > Nanos{} || slot.starts > 0; });
    if (has_run && !meter.is_frozen) round += meter.slice + kSwitch;
  }
  return round;
}

// No record for long: nobody known to be resident must be one that was there before us.
void Accounting::infer_resident() {
  if (!has_log_ || (is_resident_known_ && find(resident_) != nullptr)) return;
  pid_t found = 0, unsampled = 0;
  int busy = 0, present = 0;
  for (const auto& [pid, meter] : meters_) {
    if (meter.ended != Time::max()) continue;
    ++present;
    if (meter.sampled < 0) unsampled = pid;
    if (meter.is_frozen || meter.sampled < kBusySample) continue;
    found = pid;
    ++busy;
  }
  if (busy == 0 && present == 1 && unsampled != 0) {
    found = unsampled;
    busy = 1;
  }
  if (busy != 1) return;
  resident_ = found;
  is_resident_known_ = true;
}

void Accounting::apply(const SwitchRecord& record) {
  resident_since_ = record.time;
  is_resident_known_ = true;
  Meter* meter = find(record.pid);
  if (meter != nullptr && !meter->is_frozen) meter->last_active = record.time;
  if (record.is_start) {
    const bool is_change = resident_ == 0 && vacant_since_ != Time::min();
    if (is_change && record.time - vacant_since_ <= kLongestSwitch)
      all_.back().switching += record.time - vacant_since_;
    resident_ = record.pid;
    turn_began_ = record.time;
    is_turn_whole_ = true;
    ++all_.back().starts;
    if (meter != nullptr) {
      ++meter->slots.back().starts;
      ++meter->pending.turns;
    }
  } else if (resident_ == record.pid) {
    if (meter != nullptr && is_turn_whole_) end_turn(*meter, record.time - turn_began_);
    resident_ = 0;
    vacant_since_ = record.time;
  }
}

// A turn ends with its slice, or after several of them when nobody else had work meanwhile. One
// that ends before gave the GPU up by itself, with no state to store. The turn has been charged
// already, so what is too much is taken off the next one.
void Accounting::end_turn(Meter& meter, Nanos turn) {
  if (meter.slice <= Nanos::zero() || turn < meter.slice) return;
  const Nanos beyond = turn % meter.slice;
  if (beyond <= kLongestSwitch) meter.switching += beyond;
}

void Accounting::apply(const Boundary& boundary) {
  Meter* meter = find(boundary.pid);
  if (meter == nullptr || meter->is_frozen == boundary.is_frozen) return;
  if (resident_ == boundary.pid) is_turn_whole_ = false;
  if (boundary.is_frozen) {
    meter->wanted_when_frozen = wants(*meter, boundary.at);
    meter->idle_when_frozen = boundary.at - meter->last_active;
  } else if (meter->wanted_when_frozen) {
    meter->last_active = boundary.at - meter->idle_when_frozen;
  }
  meter->is_frozen = boundary.is_frozen;
}

void Accounting::sample(std::span<const Utilisation> samples, Time now) {
  for (auto& [pid, meter] : meters_) {
    double busy = 0;  // the driver leaves out who did nothing
    for (const Utilisation& sample : samples)
      if (sample.pid == pid) busy += sample.sm_fraction;
    meter.sampled = busy;
    Nanos frozen{};
    for (uint32_t i = 0; i < kWindowSlots; ++i) frozen += meter.slots[i].frozen;
    meter.lone.sample(busy, 1 - std::chrono::duration<double>(frozen) / kWindow, now - meter.added,
                      now);
    if (busy >= kBusySample && !meter.is_frozen) meter.last_active = now;
  }
}

bool Accounting::needs_samples() const {
  return !meters_.empty() && (!has_log_ || at_ - resident_since_ > kLoneAfter);
}

Accounting::Charge Accounting::take_charge(pid_t pid) {
  Meter* meter = find(pid);
  return meter == nullptr ? Charge{} : std::exchange(meter->pending, Charge{});
}

bool Accounting::wants(const Meter& meter, Time now) const {
  if (meter.is_frozen) return meter.wanted_when_frozen;
  return now - meter.last_active < std::max(kWantsFor, 3 * round_ / 2);
}

bool Accounting::wants_gpu(pid_t pid, Time now) const {
  const Meter* meter = find(pid);
  return meter != nullptr && wants(*meter, now);
}

Nanos Accounting::window() const {
  const Nanos closed = kSlot * slots_closed_;
  return std::min(closed, kWindow);
}

double Accounting::share_of(const Meter& meter) const {
  if (!has_log_) return meter.sampled;
  const Nanos age = (slot_end_ - kSlot) - meter.added;
  const Nanos span = std::min(window(), age);
  if (span < kLeastWindow) return -1;
  Nanos used{};
  for (uint32_t i = 0; i < kWindowSlots; ++i) used += meter.slots[i].used;
  return std::min(1.0, std::chrono::duration<double>(used) / span);
}

double Accounting::share(pid_t pid) const {
  const Meter* meter = find(pid);
  return meter == nullptr ? -1 : share_of(*meter);
}

Accounting::Use Accounting::use(pid_t pid, Time now) const {
  Use use;
  use.history_permille.fill(0xFFFF);
  const Meter* meter = find(pid);
  if (meter == nullptr) return use;
  use.total = meter->total;
  use.share = share_of(*meter);
  use.wants_gpu = wants(*meter, now);
  if (has_log_ && use.share >= 0) {
    uint32_t starts = 0;
    for (uint32_t i = 0; i < kWindowSlots; ++i) starts += meter->slots[i].starts;
    const Nanos span = std::min(window(), (slot_end_ - kSlot) - meter->added);
    use.switches_per_s = starts / std::chrono::duration<double>(span).count();
  }
  use.history_permille = meter->history;
  return use;
}

double Accounting::busy() const {
  if (!has_log_) {
    double sum = -1;
    for (const auto& [pid, meter] : meters_)
      if (meter.sampled >= 0) sum = std::max(sum, 0.0) + meter.sampled;
    return std::min(sum, 1.0);
  }
  if (window() < kLeastWindow) return -1;
  Nanos used{};
  for (uint32_t i = 0; i < kWindowSlots; ++i) used += all_[i].used;
  return std::min(1.0, std::chrono::duration<double>(used) / window());
}

double Accounting::switches_per_s() const {
  if (!has_log_ || window() < kLeastWindow) return -1;
  uint32_t starts = 0;
  for (uint32_t i = 0; i < kWindowSlots; ++i) starts += all_[i].starts;
  return starts / std::chrono::duration<double>(window()).count();
}

double Accounting::switching() const {
  if (!has_log_ || window() < kLeastWindow) return 0;
  Nanos switching{};
  for (uint32_t i = 0; i < kWindowSlots; ++i) switching += all_[i].switching;
  return std::min(1.0, std::chrono::duration<double>(switching) / window());
}

}  // namespace gpushare
