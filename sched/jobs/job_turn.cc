// SPDX-License-Identifier: Apache-2.0
#include "sched/jobs/job_turn.h"

#include <algorithm>
#include <utility>

namespace gpushare {
namespace {

// How often a look is due while a job stops, for processes that cannot wake the agent, and
// otherwise.
constexpr Nanos kStoppingLook = std::chrono::milliseconds(2);
constexpr Nanos kCalmLook = std::chrono::milliseconds(10);
// A wait is believed for so long after the last launch, whatever log and samples say, which are
// behind.
constexpr Nanos kWaitBelieved = std::chrono::milliseconds(200);
// What a process says of its iterations may be anything.
constexpr Nanos kLongest = std::chrono::hours(1);

}  // namespace

void JobTurn::look(Time now, std::span<const ProcessLook> looks) {
  std::erase_if(processes_, [&](const auto& entry) {
    return !std::ranges::binary_search(looks, entry.first, {}, &ProcessLook::process);
  });
  Lockstep::Counts counts;
  for (const ProcessLook& look : looks) {
    const auto [at, is_new] = processes_.try_emplace(look.process);
    meet(at->second, look, now);
    // One that comes while its job is held is held with it.
    if (is_new && state_ != TurnState::kRunning && state_ != TurnState::kFree)
      hold(at->second, now);
    if (look.has_boundary) counts.emplace_back(look.process, look.begun);
  }
  if (state_ == TurnState::kRunning && counts.size() > 1) lockstep_.see(counts);
  wants_ =
      std::ranges::any_of(processes_, [&](const auto& entry) { return wants(entry.second, now); });
}

void JobTurn::meet(Held& held, const ProcessLook& look, Time now) {
  const bool has_launched = look.launches != held.look.launches;
  if (has_launched) {
    held.blind_freezes = 0;
    held.was_seen_at_work = false;
    held.is_idle = false;
    if (held.rung != Rung::kNone) {
      held.went_on = now;
      if (held.first_on == Time{}) held.first_on = now;
    }
  } else if (look.was_at_work && held.is_idle && !held.was_seen_at_work) {
    held.was_seen_at_work = true;
    held.patience = std::min(2 * held.patience, kLongestPatience);
  } else if (!look.wants_gpu && !look.is_frozen) {
    held.was_seen_at_work = false;  // whatever it was, it is over
  }
  if (state_ == TurnState::kRunning && began_ == Time{} &&
      look.begun == held.begun_when_let_in + 1 && look.began > since_)
    began_ = look.began;
  const Time before = held.look.began;
  held.look = look;
  if (look.began > now) held.look.began = before;  // that cannot be
}

// The last iteration of this turn has ended. The first ones tell less: in them the GPU changes
// hands. One that differs from those before is forgotten, two in a row are the new measure.
void JobTurn::learn_from_stand(Held& held) const {
  const ProcessLook& look = held.look;
  if (!look.at_boundary || look.began <= since_ || *look.at_boundary < look.began) return;
  const Nanos took = std::min(*look.at_boundary - look.began, kLongest);
  const bool was_wrong = held.miss && *held.miss > kMostMiss;
  held.miss.reset();
  if (held.length > Nanos{}) held.miss = std::chrono::abs(took - held.length);
  const bool is_wrong = held.miss && *held.miss > kMostMiss;
  if (!held.miss || (is_wrong && was_wrong))
    held.length = took;
  else if (!is_wrong)
    held.length += (took - held.length) / 4;
}

// It has launched nothing for its patience, and stands nowhere. Who was let in because it wanted
// the GPU has its patience to come to its next launch. A wait counts while the log or the driver's
// samples say that there is work, because a program may be stopped in one.
bool JobTurn::is_quiet(const Held& held, Time now) {
  const ProcessLook& look = held.look;
  if (look.launches == 0) return true;
  const Nanos passed = now - std::max(look.last_launch, held.let_in);
  if (look.waits_for_work && (look.wants_gpu || passed < kWaitBelieved)) return false;
  return look.is_done || passed >= held.patience;
}

bool JobTurn::wants(const Held& held, Time now) {
  const ProcessLook& look = held.look;
  if (look.is_out) return false;
  // What stands frozen was at work, and can show nothing of what it wants now.
  if (look.is_frozen && held.rung == Rung::kFreeze) return !look.only_starts;
  if (look.is_frozen || !look.has_shim) return look.wants_gpu;
  return look.at_boundary || look.is_at_gate || held.was_seen_at_work || !is_quiet(held, now);
}

void JobTurn::hold(Held& held, Time now) {
  const ProcessLook& look = held.look;
  held.run_until = std::max<uint64_t>(look.begun, 1);
  held.is_idle = false;
  if (!look.has_shim) return climb(held, look.wants_gpu ? Rung::kFreeze : Rung::kNone, now);
  const bool stands = look.at_boundary || look.is_at_gate;
  const bool is_idle = !stands && !held.was_seen_at_work && is_quiet(held, now);
  const bool is_leaving = is_idle && look.is_done;
  if (!stands && !is_leaving && look.can_freeze && held.launches_when_frozen == look.launches) {
    if (++held.blind_freezes <= kBlindFreezes) return climb(held, Rung::kFreeze, now);
    held.blind_freezes = 0;
    held.was_seen_at_work = false;
    held.is_idle = true;
    return climb(held, Rung::kGate, now);
  }
  if (is_idle) {
    held.is_idle = true;
    return climb(held, Rung::kGate, now);
  }
  // It has been waiting for what it launched long ago, and its next launch may be as far off.
  const bool is_long = !stands && look.waits_for_work && !look.has_boundary && look.can_freeze &&
                       now - std::max(look.last_launch, held.let_in) >= kPatience;
  if (is_long) return climb(held, Rung::kFreeze, now);
  climb(held, look.has_boundary ? Rung::kBoundary : Rung::kGate, now);
}

void JobTurn::climb(Held& held, Rung rung, Time now) {
  held.rung = rung;
  if (rung == Rung::kFreeze) held.launches_when_frozen = held.look.launches;
  held.rung_since = now;
  held.first_on = held.went_on = Time{};
  held.stands = false;
}

void JobTurn::advance(Held& held, Time now, Nanos grace) {
  const ProcessLook& look = held.look;
  const bool is_over = now - held.rung_since >= grace;
  const bool was_standing = held.stands;
  held.stands = stands(held, now);
  if (held.stands && !was_standing) {
    held.stands_since = now;
    held.first_on = held.went_on = Time{};
    learn_from_stand(held);
  }
  // One that has gone quiet in the meantime has nothing to be frozen for.
  const bool gone_quiet = is_over && !held.stands && look.has_shim && !held.was_seen_at_work &&
                          !look.was_at_work && is_quiet(held, now);
  if (gone_quiet && held.rung != Rung::kFreeze) {
    if (held.rung != Rung::kGate) climb(held, Rung::kGate, now);
    held.is_idle = true;
    held.stands = true;
    held.stands_since = now;
    return;
  }
  // What it has queued may finish beside the next one, but not for longer than a grace.
  const bool works_on = held.stands && look.was_at_work && now - held.stands_since >= grace;
  switch (held.rung) {
    case Rung::kNone:
      if (!look.has_shim && look.wants_gpu) climb(held, Rung::kFreeze, now);
      break;
    case Rung::kBoundary: {
      const bool goes_on = held.stands && held.first_on != Time{} &&
                           now - held.first_on >= kGoesOn && now - held.went_on < kGoesOn;
      if (goes_on || (!held.stands && is_over))
        climb(held, Rung::kGate, now);
      else if (works_on)
        climb(held, Rung::kFreeze, now);
      break;
    }
    case Rung::kGate:
      if (works_on || (!held.stands && is_over)) climb(held, Rung::kFreeze, now);
      break;
    case Rung::kFreeze:  // it was frozen when no start could pass
      if (look.only_starts) climb(held, look.has_shim ? Rung::kGate : Rung::kNone, now);
      break;
  }
  held.stands = stands(held, now);
}

bool JobTurn::stands(const Held& held, Time) {
  const ProcessLook& look = held.look;
  if (look.is_out) return true;
  switch (held.rung) {
    case Rung::kNone:
      return look.has_shim || !look.wants_gpu;
    case Rung::kBoundary:
      return look.at_boundary.has_value();
    case Rung::kGate:
      return look.at_boundary || look.is_at_gate || held.is_idle;
    case Rung::kFreeze:
      return look.is_frozen || !look.can_freeze;
  }
  return true;
}

void JobTurn::enter(TurnState state, Time now) {
  const bool was_running = occupies();
  state_ = state;
  has_turn_ = has_turn_ && occupies();
  if (was_running != occupies() || state == TurnState::kRunning) since_ = now;
}

void JobTurn::run(Time now) {
  if (state_ == TurnState::kRunning) return;
  if (!std::exchange(has_turn_, true)) ++turns_;
  for (auto& [process, held] : processes_) {
    held.let_in = wants(held, now) ? now : Time{};
    climb(held, Rung::kNone, now);
    held.is_idle = false;
    held.begun_when_let_in = held.look.begun;
  }
  enter(TurnState::kRunning, now);
  began_ = Time{};
}

void JobTurn::release(Time now) {
  for (auto& [process, held] : processes_) climb(held, Rung::kNone, now);
  if (state_ != TurnState::kFree) enter(TurnState::kFree, now);
}

void JobTurn::stop(Time now, Nanos grace) {
  grace_ = grace;
  if (state_ == TurnState::kRunning || state_ == TurnState::kFree) {
    Lockstep::Counts counts;
    for (auto& [process, held] : processes_) {
      hold(held, now);
      if (held.look.has_boundary) counts.emplace_back(process, held.look.begun);
    }
    const std::vector<uint64_t> stops = lockstep_.stops(counts);
    for (std::size_t i = 0; i < counts.size(); ++i)
      processes_.at(counts[i].first).run_until = std::max<uint64_t>(stops[i], 1);
    enter(TurnState::kStopping, now);
  }
  bool all_stand = true, is_any_frozen = false;
  Time stood{};
  for (auto& [process, held] : processes_) {
    advance(held, now, grace);
    all_stand = all_stand && held.stands;
    is_any_frozen = is_any_frozen || held.look.is_frozen;
    stood = std::max(stood, held.look.at_boundary.value_or(held.stands_since));
  }
  if (state_ == TurnState::kStopping) {
    if (!all_stand) return;
    stood_ = std::min(stood, now);
    enter(is_any_frozen ? TurnState::kStopped : TurnState::kHeld, now);
  } else {
    state_ = is_any_frozen ? TurnState::kStopped : TurnState::kHeld;
  }
}

std::vector<ProcessHold> JobTurn::holds() const {
  std::vector<ProcessHold> holds;
  holds.reserve(processes_.size());
  for (const auto& [process, held] : processes_) {
    ProcessHold& hold = holds.emplace_back(ProcessHold{.process = process});
    if (held.rung == Rung::kNone) continue;
    hold.is_frozen = held.rung == Rung::kFreeze && held.look.can_freeze;
    if (!held.look.has_shim) continue;
    hold.run_until = held.run_until;
    hold.is_gate_closed = held.rung >= Rung::kGate;
  }
  return holds;
}

Rung JobTurn::rung() const {
  Rung highest = Rung::kNone;
  for (const auto& [process, held] : processes_) highest = std::max(highest, held.rung);
  return highest;
}

std::optional<Time> JobTurn::expected_stand() const {
  if (state_ != TurnState::kStopping) return std::nullopt;
  std::optional<Time> last;
  for (const auto& [process, held] : processes_) {
    if (held.stands) continue;
    const ProcessLook& look = held.look;
    if (held.rung != Rung::kBoundary || look.begun < held.run_until || look.began == Time{} ||
        held.length <= Nanos{})
      return std::nullopt;
    last = std::max(last.value_or(Time{}), look.began + held.length);
  }
  return last;
}

bool JobTurn::is_about_to_stand(Time now) const {
  const std::optional<Time> expected = expected_stand();
  if (!expected || now < *expected - kLead || now > *expected + kLead) return false;
  return std::ranges::all_of(processes_, [](const auto& entry) {
    const Held& held = entry.second;
    return held.stands || (held.look.waits_for_work && held.miss && *held.miss <= kMostMiss);
  });
}

Time JobTurn::next(Time now) const {
  if (state_ == TurnState::kFree) return Time::max();
  Time next = now + (state_ == TurnState::kStopping ? kStoppingLook : kCalmLook);
  if (const std::optional<Time> expected = expected_stand()) {
    if (now < *expected - kLead)
      next = std::min(next, *expected - kLead);
    else if (now < *expected + kLead)
      next = std::min(next, now + kLead / 2);
  }
  return next;
}

}  // namespace gpushare
