// SPDX-License-Identifier: Apache-2.0
#include "sched/account/accounting.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sched/account/scaled.h"

namespace gpushare {
namespace {

constexpr Nanos kLeastWindow = 2 * Accounting::kSlot;
constexpr Nanos kSwitch = std::chrono::microseconds(80);  // what changing contexts alone takes
// A turn that begins so long after a freeze is none from before it: what the log and the driver
// say of the time may differ by some tens of microseconds.
constexpr Nanos kAfterFreeze = std::chrono::milliseconds(5);
// A thaw that is entered so soon after such a turn has let it begin.
constexpr Nanos kThawIsLate = std::chrono::milliseconds(10);
// Of what programs say of themselves no more is believed.
constexpr Nanos kLongestSlice = std::chrono::seconds(1);

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

Accounting::Meter* Accounting::bearer(pid_t pid) {
  for (Former& former : formers_)
    if (former.pid == pid && at_ < former.until) return &former.meter;
  return find(pid);
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
  if (resident_ == pid) forget_resident();
}

void Accounting::succeed(pid_t pid, Time at, Time now) {
  const auto earlier = meters_.find(pid);
  if (earlier != meters_.end()) {
    formers_.push_back({pid, at, earlier->second});
    meters_.erase(earlier);
    add_boundary({std::max(at, at_), pid, Boundary::Kind::kSuccession});
  }
  add(pid, now);
}

const Accounting::Meter* Accounting::account(pid_t pid, std::optional<Time> before) const {
  if (!before) return find(pid);
  const auto former = std::ranges::find_if(
      formers_, [&](const Former& one) { return one.pid == pid && one.until == *before; });
  return former == formers_.end() ? nullptr : &former->meter;
}

Accounting::Meter* Accounting::account(pid_t pid, std::optional<Time> before) {
  return const_cast<Meter*>(std::as_const(*this).account(pid, before));
}

Accounting::Charge Accounting::take_charge(pid_t pid, std::optional<Time> before) {
  Meter* const meter = account(pid, before);
  return meter == nullptr ? Charge{} : std::exchange(meter->pending, Charge{});
}

Nanos Accounting::conclude(pid_t pid, std::optional<Time> before) {
  Meter* const meter = account(pid, before);
  if (meter == nullptr) return {};
  const Nanos presumed = meter->lone_use.conclude();
  meter->total += presumed;
  return presumed;
}

// Where no sample was ever told none is waited for.
bool Accounting::is_told(pid_t pid, std::optional<Time> before) const {
  const Meter* const meter = account(pid, before);
  return meter == nullptr || told_ == Time{} || !meter->lone_use.is_open();
}

// By its own word alone some was no use.
Accounting::Charge Accounting::close(pid_t pid, std::optional<Time> before) {
  Meter* const meter = account(pid, before);
  if (meter == nullptr) return {};
  strangers_.absorb(meter->lone_use);
  const LoneUse::Untold untold = meter->lone_use.close();
  write_off(*meter, untold);
  count(*meter, untold.spared_by_rate);
  const Charge last = meter->pending;
  if (!before) {
    remove(pid);
  } else {
    std::erase_if(formers_,
                  [&](const Former& one) { return one.pid == pid && one.until == *before; });
  }
  return last;
}

void Accounting::set_slice(pid_t pid, Nanos slice) {
  if (Meter* meter = find(pid)) meter->slice = std::clamp(slice, Nanos{}, kLongestSlice);
  rest_after_.reset();
}

void Accounting::set_groups(pid_t pid, uint32_t groups) {
  if (Meter* meter = find(pid)) meter->groups = std::clamp(groups, 1U, kMostGroups);
  rest_after_.reset();
}

Nanos Accounting::slice_of(const Meter& meter) {
  return meter.slice > Nanos::zero() ? meter.slice : kDriversSlice;
}

bool Accounting::is_young(pid_t pid, Time now) const {
  const Meter* const meter = find(pid);
  return meter != nullptr && now - meter->added < LoneContext::kYoung;
}

void Accounting::hear(pid_t pid, const LoneContext::Word& word, Time now) {
  if (Meter* meter = find(pid)) meter->lone.hear(word, now);
}

void Accounting::note_turn(pid_t pid, Turn turn, Time now) {
  Meter* const meter = find(pid);
  if (meter == nullptr) return;
  if (turn == Turn::kWorks) return meter->lone.begin_work(now);
  meter->lone.end_work(turn == Turn::kHeld, now);
}

void Accounting::set_frozen(pid_t pid, bool is_frozen, Time at) {
  add_boundary({at, pid, is_frozen ? Boundary::Kind::kFreeze : Boundary::Kind::kThaw});
}

// Calls come in the order of time, but for one that was measured a little earlier.
void Accounting::add_boundary(const Boundary& boundary) {
  const auto after = std::upper_bound(boundaries_.begin(), boundaries_.end(), boundary.at,
                                      [](Time t, const Boundary& b) { return t < b.at; });
  boundaries_.insert(after, boundary);
}

void Accounting::consume(const SwitchBatch& batch) {
  records_ += batch.records.size();
  if (batch.lost > 0) {
    lost_ += batch.lost;
    const Time resumes = batch.records.empty() ? batch.complete_until : batch.records.front().time;
    if (is_started_ && resumes > at_) {
      unattributed_ += resumes - at_;
      forget_resident();
    }
    is_turn_whole_ = false;
    vacant_since_ = Time::min();
  }
  // What would lie in the future would charge the resident one for time that has not been, and keep
  // all records until then from charging anybody.
  const Time latest = batch.read_at == Time{} ? Time::max() : batch.read_at;
  for (SwitchRecord record : batch.records) {
    record.time = std::min(record.time, latest);
    advance(record.time);
    apply(record);
  }
  advance(batch.complete_until);
  settle();
  rest_after_.reset();
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
    Time until = std::min(to, slot_end_);
    if (const Meter* meter = bearer(resident_); meter != nullptr && at_ < lone_from(*meter))
      until = std::min(until, lone_from(*meter));
    charge(at_, until);
    at_ = until;
    if (at_ == slot_end_) close_slot();
  }
}

// If the resident one still has the GPU then, it has been alone since it got it: whoever waited
// would have had it at the end of the slice.
Time Accounting::lone_from(const Meter& meter) const {
  return resident_since_ + slice_of(meter) + kLongestSwitch;
}

void Accounting::charge(Time from, Time to) {
  const Nanos span = to - from;
  if (is_any_frozen_)
    for (auto& [pid, meter] : meters_)
      if (meter.is_frozen) meter.slots.back().frozen += span;
  if (!is_resident_known_ || resident_ == 0) return;

  if (Meter* meter = bearer(resident_)) {
    if (meter->is_frozen && !meter->runs_frozen) return;
    if (meter->lone.is_excused(to - meter->added, to)) {
      if (from >= meter->ended) return;
      undecided_ += span;
      if (from >= lone_from(*meter))
        meter->lone_use.add_by_word(to - std::exchange(undecided_, Nanos{}), to);
      return;
    }
    decide(*meter);
    if (from >= lone_from(*meter)) return charge_alone(*meter, from, to);
    const Nanos switching = std::min(span, meter->switching);
    meter->lone_use.add_shared(from, to, switching);
    meter->last_active = to;
    meter->switching -= switching;
    all_.back().switching += switching;
    return add_use(*meter, span - switching);
  }
  charge_stranger(from, to);
}

// Beyond its slice it is alone, and what it did a sample tells.
void Accounting::charge_alone(Meter& meter, Time from, Time to) {
  const bool is_long = to - resident_since_ > kLoneAfter;
  if (is_long && from >= meter.ended) return;
  // Its first samples are of its start, and say little of the work that comes after it.
  const bool is_starting = !is_long && to - meter.added < kStart;
  const double rate = is_starting ? 1 : meter.lone.rate(to);
  const Nanos presumed = meter.lone_use.add_alone(from, to, rate);
  if (rate > 0) meter.last_active = to;
  meter.pending.presumed += presumed;
  show_use(meter, presumed);
}

void Accounting::charge_stranger(Time from, Time to) {
  if (from >= resident_since_ + kDriversSlice + kLongestSwitch) {
    strangers_.add_alone(from, to, 1);
  } else {
    strangers_.add_shared(from, to);
  }
  all_.back().used += to - from;
}

void Accounting::add_use(Meter& meter, Nanos used) {
  count(meter, used);
  show_use(meter, used);
}

void Accounting::show_use(Meter& meter, Nanos used) {
  meter.slots.back().used += used;
  all_.back().used += used;
}

void Accounting::count(Meter& meter, Nanos used) {
  meter.total += used;
  meter.pending.used += used;
}

// What was presumed was use; of what it rested by its own word nobody knows.
void Accounting::write_off(Meter& meter, const LoneUse::Untold& untold) {
  count(meter, untold.presumed);
  meter.pending.presumed -= untold.presumed;
  meter.pending.excused += untold.spared_by_word;
}

// It was not alone for long enough to say so, or is not at rest any more.
void Accounting::decide(Meter& meter) {
  if (undecided_ <= Nanos::zero()) return;
  meter.lone_use.add_shared(at_ - undecided_, at_);
  add_use(meter, std::exchange(undecided_, Nanos{}));
}

void Accounting::forget_resident() {
  resident_ = 0;
  residents_known_since_ = Time::max();
  undecided_ = {};
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
  (void)strangers_.forget(at_);
  for (auto& [pid, meter] : meters_) {
    shift(meter.slots);
    const LoneUse::Untold untold = meter.lone_use.forget(at_);
    write_off(meter, untold);
    meter.pending.excused += untold.spared_by_rate;
    meter.share = share_of(meter);
    if (!is_second) continue;
    std::move(meter.history.begin() + 1, meter.history.end(), meter.history.begin());
    meter.history.back() = meter.share < 0 ? 0xFFFF : permille(meter.share);
  }
  round_ = round([](const Meter& meter) { return meter.slice + kSwitch; });
  if (at_ - resident_since_ > kLoneAfter) infer_resident();
}

// How long the hardware takes to come back to one that has work, if all that ran in the window have
// some and each uses its `part` of the round.
template <class Part>
Nanos Accounting::round(Part part) const {
  Nanos round{};
  for (const auto& [pid, meter] : meters_)
    if (comes_in_turn(meter)) round += part(meter);
  return round;
}

// It has run in the window, is there and may run.
bool Accounting::comes_in_turn(const Meter& meter) const {
  const auto has_run = [](const Slot& slot) { return slot.used > Nanos{} || slot.starts > 0; };
  return !meter.is_frozen && meter.ended > at_ && std::ranges::any_of(meter.slots, has_run);
}

// After so long without the GPU one that may run has nothing to do: one and a half rounds, in which
// all groups of the others, as far as they are there and not frozen, have had their slices.
Nanos Accounting::rest_after() {
  const auto part = [](const Meter& meter) { return meter.groups * (slice_of(meter) + kSwitch); };
  if (!rest_after_) rest_after_ = 3 * round(part) / 2;
  return *rest_after_;
}

// No record for long: where nobody is known to be resident, that must be one that was there before
// us; but not after a record of one that went off, nor of one that came on and is not known yet.
// The log's time may be before that at which a process came.
void Accounting::infer_resident() {
  if (!has_log_ || resident_ != 0 || vacant_since_ != Time::min()) return;
  pid_t found = 0, unsampled = 0;
  int busy = 0, present = 0;
  for (const auto& [pid, meter] : meters_) {
    if (meter.ended != Time::max() || meter.added > at_) continue;
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
  if (Meter* const resident = bearer(resident_)) decide(*resident);
  resident_since_ = record.time;
  is_resident_known_ = true;
  residents_known_since_ = std::min(residents_known_since_, record.time);
  Meter* meter = bearer(record.pid);
  if (meter != nullptr && !record.is_start) meter->signs.shown = record.time;
  if (meter != nullptr && !meter->is_frozen) meter->last_active = record.time;
  if (record.is_start) {
    const bool is_change = resident_ == 0 && vacant_since_ != Time::min();
    if (is_change && record.time - vacant_since_ <= kLongestSwitch)
      all_.back().switching += record.time - vacant_since_;
    vacant_since_ = Time::min();
    resident_ = record.pid;
    turn_began_ = record.time;
    is_turn_whole_ = true;
    ++all_.back().starts;
    if (meter != nullptr) begin_turn(*meter, record.time);
  } else if (resident_ == record.pid || resident_ == 0) {
    if (resident_ != 0 && meter != nullptr && is_turn_whole_)
      end_turn(*meter, record.time - turn_began_);
    resident_ = 0;
    vacant_since_ = record.time;
  }
}

void Accounting::begin_turn(Meter& meter, Time at) {
  ++meter.slots.back().starts;
  ++meter.pending.turns;
  meter.has_begun = true;
  if (at - std::max(meter.signs.shown, meter.added) >= kLongRest) meter.signs.woke = at;
  meter.signs.shown = at;
  if (!meter.is_frozen || at - meter.frozen_since < kAfterFreeze) return;
  meter.runs_frozen = true;
  meter.escape.ran(at);
  is_any_suspected_ = true;
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
  if (boundary.kind == Boundary::Kind::kSuccession) {
    if (resident_ == boundary.pid) forget_resident();
    return;
  }
  const bool is_freeze = boundary.kind == Boundary::Kind::kFreeze;
  // Nobody was frozen before it came: that was the earlier bearer of its pid.
  Meter* meter = find(boundary.pid);
  if (meter != nullptr && boundary.at < meter->added) meter = nullptr;
  for (Former& former : formers_) {
    if (former.pid != boundary.pid || boundary.at > former.until) continue;
    meter = &former.meter;
    break;
  }
  if (meter == nullptr || meter->is_frozen == is_freeze) return;
  if (resident_ == boundary.pid) {
    decide(*meter);
    is_turn_whole_ = false;
  }
  if (is_freeze) {
    meter->wanted_when_frozen = wants(*meter, boundary.at);
    meter->idle_when_frozen = boundary.at - meter->last_active;
  } else if (meter->wanted_when_frozen) {
    meter->last_active = boundary.at - meter->idle_when_frozen;
  }
  meter->is_frozen = is_freeze;
  meter->runs_frozen = false;
  if (is_freeze) {
    meter->frozen_since = boundary.at;
  } else {
    meter->escape.thawed(boundary.at, kThawIsLate);
    meter->signs.shown = std::max(meter->signs.shown, boundary.at);
  }
  is_any_frozen_ =
      std::ranges::any_of(meters_, [](const auto& entry) { return entry.second.is_frozen; });
}

Accounting::Signs Accounting::signs(pid_t pid) const {
  const Meter* const meter = find(pid);
  return meter == nullptr ? Signs{} : meter->signs;
}

Nanos Accounting::rest(pid_t pid) {
  const Meter* const meter = find(pid);
  const bool is_told =
      has_log_ && is_resident_known_ && (resident_ != 0 || vacant_since_ != Time::min());
  if (!is_told || meter == nullptr || !meter->has_begun || meter->is_frozen || resident_ == pid)
    return {};
  const Nanos passed = at_ - meter->signs.shown;
  return passed >= rest_after() ? passed : Nanos{};
}

std::vector<pid_t> Accounting::take_escaped() {
  std::vector<pid_t> escaped;
  if (!std::exchange(is_any_suspected_, false)) return escaped;
  for (auto& [pid, meter] : meters_) {
    if (meter.escape.take(at_, kThawIsLate)) escaped.push_back(pid);
    is_any_suspected_ |= meter.escape.is_suspected();
  }
  return escaped;
}

// While the log is late nobody has become idle by that.
bool Accounting::wants(const Meter& meter, Time now) const {
  if (meter.is_frozen) return meter.wanted_when_frozen;
  if (has_log_ && is_started_) now = std::min(now, at_);
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
  return meter == nullptr ? -1 : meter->share;
}

Accounting::Use Accounting::use(pid_t pid, Time now) const {
  Use use;
  use.history_permille.fill(0xFFFF);
  const Meter* meter = find(pid);
  if (meter == nullptr) return use;
  use.total = meter->total;
  use.share = meter->share;
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
