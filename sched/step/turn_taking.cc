// SPDX-License-Identifier: Apache-2.0
#include "sched/step/turn_taking.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "sched/registry/ended.h"

namespace gpushare {
namespace {

// Its first context, of one that was there before the agent, is taken to be as old.
Time started(const ProcessId& process) {
  static const auto kTicks = static_cast<uint64_t>(std::max(::sysconf(_SC_CLK_TCK), 1L));
  return Time(std::chrono::seconds(process.start_ticks / kTicks) +
              Nanos(process.start_ticks % kTicks * 1'000'000'000 / kTicks));
}

bool is_capped(const Member& member, bool is_frozen) {
  return is_frozen && member.freeze == FreezeReason::kCap;
}

}  // namespace

void TurnTaking::begin() {
  jobs_.begin();
  std::swap(before_, known_);
  known_.clear();
  starts_.begin();
  std::erase_if(
      over_, [this](const ProcessId& process) { return state_.registry.find(process) == nullptr; });
}

void TurnTaking::add(uint32_t gpu, bool takes_turns, std::span<const ProcessView> processes,
                     Time now) {
  for (const ProcessView& process : processes) {
    if (!process.has_context) continue;
    const Tenants::Run run = state_.tenants.run_of(process.process);
    const Process* const known_process = state_.registry.find(process.process.pid);
    const bool was_there = known_process == nullptr || known_process->is_late_attach;
    const auto member = state_.members.find({process.process, gpu});
    const bool is_member = member != state_.members.end();
    jobs_.add({.process = process.process,
               .gpu = gpu,
               .tenant = is_member ? member->second.tenant : process.tenant,
               .run = run.number,
               .user = is_member ? std::optional(member->second.user) : std::nullopt,
               .is_late = was_there,
               .came = run.number != 0 && run.asked != Time{} ? run.asked
                       : was_there ? std::min(process.came, started(process.process))
                                   : process.came,
               .used = process.used - process.returned,
               .memory_bytes = process.memory_bytes,
               .command_line = process.command_line,
               .iterations = process.iterations});
    if (!takes_turns || ends_its_turn(process.process, now)) continue;
    const auto [at, is_new] = known_.try_emplace(process.process);
    Known& known = at->second;
    known.gpus.push_back(gpu);
    ProcessLook& look = known.look;
    if (is_new) {
      const auto before = before_.find(process.process);
      if (before != before_.end()) look = before->second.look;
      look.process = process.process;
      look.is_frozen = look.can_freeze = look.only_starts = true;
      look.is_out = look.wants_gpu = look.was_at_work = false;
    }
    look.has_shim = process.has_shim;
    const std::optional<IterationsView>& said = process.iterations;
    look.has_boundary = process.has_shim && said && said->source != ShimSource::kNone;
    const bool is_gated = outside_.shims != nullptr && outside_.shims->is_gated(process.process);
    const bool is_server = outside_.mps != nullptr && outside_.mps->is_server(process.process);
    look.can_freeze = look.can_freeze && process.can_control && !is_gated && !is_server;
    look.is_frozen = look.is_frozen && process.is_frozen;
    known.is_frozen_by_user = known.is_frozen_by_user || process.is_frozen_by_user;
    look.is_out = look.is_out || known.is_frozen_by_user ||
                  (is_member && is_capped(member->second, process.is_frozen));
    // What the accounting says of it. While it starts, that is no work.
    const Holder* const holder = is_member ? member->second.holder : nullptr;
    const bool is_past_start = was_there || (process.has_shim && look.launches > 0);
    if (starts(process, gpu, is_past_start, holder)) continue;
    look.only_starts = false;
    const bool rests = state_.accounting[gpu].rest(process.process.pid) >= ProcessLook::kRest;
    look.wants_gpu = look.wants_gpu || (process.wants_gpu && !rests);
    look.was_at_work =
        look.was_at_work || (process.turns > 0 && process.used >= ProcessLook::kLeastWork);
  }
}

// Whether it has ended in its job's turn: the next one need not wait until the driver has taken it
// down.
bool TurnTaking::ends_its_turn(const ProcessId& process, Time now) {
  const Process* const known = state_.registry.find(process);
  if (known == nullptr || !known->ended || EndedProcesses::remains(*known, now)) {
    over_.erase(process);
    return false;
  }
  const JobTurn* const turn = conductor_.find(jobs_.job_of(process));
  if (turn != nullptr && turn->occupies()) over_.insert(process);
  return over_.contains(process);
}

// Without a log nothing tells how much of the GPU it has, and what a client of MPS has is told of
// its server. All that is asked for those alone that started yet in the last step.
bool TurnTaking::starts(const ProcessView& process, uint32_t gpu, bool is_past_start,
                        const Holder* holder) {
  const Accounting& accounting = state_.accounting[gpu];
  Starts::Seen seen{.process = process.process, .gpu = gpu, .used = process.used};
  if (!starts_.was_over(process.process, gpu)) {
    const bool shares_group = holder != nullptr && state_.enforcer.shares_group(*holder);
    seen.can_start = !is_past_start && accounting.has_log() && !shares_group;
    seen.passes = process.used > Nanos{} && is_wanted_by_others(gpu, jobs_.job_of(process.process));
    seen.is_frozen = process.is_frozen;
  }
  return starts_.see(seen, accounting.known_until());
}

// As of the last step: whether this job has no turn, and another one wants the GPU.
bool TurnTaking::is_wanted_by_others(uint32_t gpu, uint64_t job) const {
  const JobTurn* const own = conductor_.find(job);
  return (own == nullptr || !own->occupies()) &&
         std::ranges::any_of(jobs_.all(), [&](const Job& other) {
           const JobTurn* const turn = conductor_.find(other.id);
           return other.id != job && (other.gpus & uint64_t{1} << gpu) != 0 && turn != nullptr &&
                  turn->wants_gpu();
         });
}

// What it says by itself, as of now.
void TurnTaking::refresh(Known& known, Time now) {
  ProcessLook& look = known.look;
  if (!look.has_shim || outside_.shims == nullptr) return;
  const std::optional<SlotReading> said = outside_.shims->look(look.process);
  if (!said) {
    look.has_shim = look.has_boundary = false;
    return;
  }
  if (said->launches != look.launches) look.last_launch = now;
  look.launches = said->launches;
  look.waits_for_work = said->waits > 0;
  look.is_at_gate = said->is_at_gate;
  look.at_boundary = said->at_boundary;
  look.is_done = said->is_done;
  if (!said->is_read) return;
  look.begun = said->begun;
  look.began = said->began;
}

void TurnTaking::look_at_all(Time now) {
  for (auto& [process, known] : known_) refresh(known, now);
  std::vector<Conductor::Job> jobs;
  for (const Job& job : jobs_.all()) {
    const Tenant* const tenant = state_.tenants.at(job.tenant);
    Conductor::Job one{.id = job.id, .gpus = job.gpus, .processes = {}};
    if (tenant != nullptr) one.priority = tenant->priority;
    for (const ProcessId& process : job.processes)
      if (const auto known = known_.find(process); known != known_.end())
        one.processes.push_back(known->second.look);
    if (!one.processes.empty()) jobs.push_back(std::move(one));
  }
  conductor_.look(now, std::move(jobs));
}

void TurnTaking::form(Time now) {
  jobs_.end(now, [this](uint32_t run) { return state_.tenants.has_run(run); });
  learn(now);
  estimate();
  look_at_all(now);
  idle_.clear();
  for (const Job& job : jobs_.all())
    if (const JobTurn* const turn = conductor_.find(job.id); turn != nullptr && !turn->wants_gpu())
      idle_.push_back(job.id);
}

// Who ends has said how long its command is.
void TurnTaking::learn(Time now) {
  for (const Job& job : jobs_.take_ended()) {
    if (outside_.lengths == nullptr || !teaches(job)) continue;
    const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
    outside_.lengths->add({.command = job.signature,
                           .length = worked_on_each(job),
                           .name = job.name,
                           .arrived = since_1970 - (now - job.arrived),
                           .iterations = job.iterations,
                           .memory_bytes = job.memory_bytes / std::max(job.most_gpus, 1U),
                           .gpus = job.most_gpus,
                           .user = job.user});
  }
}

void TurnTaking::estimate() {
  left_.clear();
  for (const Job& job : jobs_.all()) {
    const Tenant* const tenant = state_.tenants.at(job.tenant);
    if (tenant == nullptr) continue;
    const TenantSettings& said = tenant->settings;
    const uint64_t iterations = said.iterations != 0 ? said.iterations : job.expected;
    left_[job.id] =
        left_of({.iterations = iterations,
                 .ended = job.iterations,
                 .period = work_of_iteration(job),
                 .promised = work_promised(job),
                 .beyond = said.iterations != 0 ? Nanos{} : work_beyond(job),
                 .since_end = work_since_end(job),
                 .length = said.length,
                 .learnt = outside_.lengths == nullptr ? std::nullopt
                                                       : outside_.lengths->median(job.signature),
                 .service = service_on_each(job),
                 .start = start_on_each(job)});
  }
}

void TurnTaking::add_late(const Departed& departed) {
  const Nanos used = departed.owed.net();
  if (departed.job == 0 || used == Nanos{}) return;
  jobs_.add_late(departed.job, used);
  if (departed.was_starting && is_wanted_by_others(departed.gpu, departed.job))
    starts_.charge(departed.gpu, std::max(used, Nanos{}),
                   state_.accounting[departed.gpu].known_until());
}

bool TurnTaking::has_changed() {
  std::vector<std::pair<uint64_t, TurnState>> states;
  for (const Job& job : jobs_.all())
    if (const JobTurn* const turn = conductor_.find(job.id))
      states.emplace_back(job.id, turn->state());
  return std::exchange(states_, states) != states;
}

std::span<JobView> TurnTaking::jobs(uint32_t gpu) {
  views_.clear();
  for (const Job& job : jobs_.all()) {
    const JobTurn* const turn = conductor_.find(job.id);
    const Tenant* const tenant = state_.tenants.at(job.tenant);
    if ((job.gpus & uint64_t{1} << gpu) == 0 || turn == nullptr || tenant == nullptr) continue;
    views_.push_back({.id = job.id,
                      .name = job.name,
                      .tenant = job.tenant,
                      .priority = tenant->priority,
                      .weight = static_cast<double>(tenant->settings.weight),
                      .arrived = job.arrived,
                      .service = service_on_each(job),
                      .start = start_on_each(job),
                      .left = left_[job.id].time,
                      .left_source = left_[job.id].source,
                      .period = job.period,
                      .longest = job.longest,
                      .iterations = job.iterations,
                      .wants_gpu = turn->wants_gpu(),
                      .is_at_boundary = turn->waits(),
                      .runs = turn->occupies(),
                      .since = turn->since(),
                      .phase = job.phase,
                      .target = job.target,
                      .persistent_bytes = job.memory_bytes,
                      .gpus = job.gpus,
                      .command_line = job.command_line});
  }
  return views_;
}

void TurnTaking::set_order(uint32_t gpu, std::vector<JobDecision> jobs) {
  conductor_.set_order(JobOrder(gpu, std::move(jobs)));
}

void TurnTaking::drop_order(uint32_t gpu) { conductor_.drop_order(gpu); }

bool TurnTaking::decide(Time now) {
  const bool has_let_in = conductor_.decide(now);
  note_turns(has_let_in);
  note_work(now);
  holds_ = conductor_.holds();
  tell_of_turns(now);
  return has_let_in;
}

void TurnTaking::note_turns(bool has_let_in) {
  for (const Job& job : jobs_.all()) {
    if (job.start && !has_let_in) continue;
    const JobTurn* const turn = conductor_.find(job.id);
    if (turn == nullptr || turn->state() != TurnState::kRunning) continue;
    if (!job.start && has_begun(job)) jobs_.end_start(job.id, worked_already(job));
    if (has_let_in) state_.tenant_use[job.tenant].turns += conductor_.take_turns(job.id);
  }
}

// A program that makes its context is often let in before it has anything to launch. Without the
// shim nothing tells when that is over.
bool TurnTaking::has_begun(const Job& job) const {
  return std::ranges::any_of(job.processes, [&](const ProcessId& process) {
    const auto known = known_.find(process);
    return known != known_.end() &&
           (!known->second.look.has_shim || known->second.look.launches > 0);
  });
}

// Without the shim.
Nanos TurnTaking::worked_already(const Job& job) const {
  Nanos worked{};
  for (const ProcessId& process : job.processes)
    if (const auto known = known_.find(process);
        known != known_.end() && !known->second.look.has_shim)
      worked += starts_.worked(process);
  return worked;
}

// Without the shim a process is frozen while it is held, which the accounting knows.
void TurnTaking::note_work(Time now) {
  for (const Job& job : jobs_.all()) {
    const JobTurn* const turn = conductor_.find(job.id);
    if (turn == nullptr) continue;
    const auto state = turn->waits()                           ? Accounting::Turn::kHeld
                       : turn->occupies() && turn->wants_gpu() ? Accounting::Turn::kWorks
                                                               : Accounting::Turn::kRests;
    for (const ProcessId& process : job.processes) {
      const auto known = known_.find(process);
      if (known == known_.end() || !known->second.look.has_shim) continue;
      for (const uint32_t gpu : known->second.gpus)
        state_.accounting[gpu].note_turn(process.pid, state, now);
    }
  }
}

void TurnTaking::add_held(Nanos passed) {
  if (!has_orders()) return;
  std::set<uint32_t> held;
  for (const Job& job : jobs_.all())
    if (const JobTurn* const turn = conductor_.find(job.id);
        turn != nullptr && turn->waits() && turn->wants_gpu())
      held.insert(job.tenant);
  for (const uint32_t tenant : held)
    if (state_.tenants.at(tenant) != nullptr) state_.tenant_use[tenant].held += passed;
}

const ProcessHold* TurnTaking::hold_of(const ProcessId& process) const {
  const auto at = std::ranges::lower_bound(holds_, process, {}, &ProcessHold::process);
  return at == holds_.end() || at->process != process ? nullptr : &*at;
}

bool TurnTaking::is_frozen(const ProcessId& process) const {
  const ProcessHold* const hold = hold_of(process);
  return hold != nullptr && hold->is_frozen;
}

const Job* TurnTaking::find_job(uint64_t id) const {
  const auto job = std::ranges::lower_bound(jobs_.all(), id, {}, &Job::id);
  return job == jobs_.all().end() || job->id != id ? nullptr : &*job;
}

void TurnTaking::carry_out(Time now) {
  tell(holds_);
  if (!has_orders()) return;
  // What stands since the freezes of this step makes room for the next one.
  look(now);
}

bool TurnTaking::look(Time now) {
  state_.enforcer.collect();  // what was frozen in the meantime stands
  for (auto& [process, known] : known_) {
    ProcessLook& each = known.look;
    each.was_at_work = false;
    each.is_frozen = true;
    each.is_out = known.is_frozen_by_user;
    for (const uint32_t gpu : known.gpus) {
      const Holder* const holder = state_.registry.holder(process, gpu);
      const bool is_frozen = holder != nullptr && state_.enforcer.brief(*holder).is_frozen;
      each.is_frozen = each.is_frozen && is_frozen;
      // The plan of this step may have lifted its cap, or have laid it on.
      const auto member = state_.members.find({process, gpu});
      each.is_out =
          each.is_out || (member != state_.members.end() && is_capped(member->second, is_frozen));
    }
  }
  look_at_all(now);
  const bool has_let_in = decide(now);
  tell(holds_);
  freeze_and_thaw(holds_);
  return has_let_in || wants_anew();
}

// Whether a job that waits wants a GPU now, and did not when its policy was last asked. One that
// the conductor has let in meanwhile is no news.
bool TurnTaking::wants_anew() const {
  return std::ranges::any_of(jobs_.all(), [&](const Job& job) {
    const JobTurn* const turn = conductor_.find(job.id);
    return turn != nullptr && turn->waits() && turn->wants_gpu() &&
           std::ranges::binary_search(idle_, job.id);
  });
}

void TurnTaking::tell(const std::vector<ProcessHold>& holds) {
  if (outside_.shims == nullptr) return;
  for (const ProcessHold& hold : holds) outside_.shims->hold(hold);
  for (const ProcessHold& before : told_)
    if (!std::ranges::binary_search(holds, before.process, {}, &ProcessHold::process))
      outside_.shims->hold({.process = before.process});
  told_ = holds;
}

// What is frozen for its cap or by the user is not ours to thaw.
void TurnTaking::freeze_and_thaw(const std::vector<ProcessHold>& holds) {
  std::map<uint32_t, std::vector<Enforcer::Target>> targets;
  for (const ProcessHold& hold : holds) {
    const auto known = known_.find(hold.process);
    if (known == known_.end() || known->second.look.is_out) continue;
    for (const uint32_t gpu : known->second.gpus) {
      const auto member = state_.members.find({hold.process, gpu});
      if (member == state_.members.end() ||
          state_.enforcer.brief(*member->second.holder).is_frozen == hold.is_frozen)
        continue;
      member->second.freeze = hold.is_frozen ? FreezeReason::kTurn : FreezeReason::kNone;
      targets[gpu].push_back({.holder = member->second.holder, .is_frozen = hold.is_frozen});
    }
  }
  for (const auto& [gpu, list] : targets) state_.enforcer.apply(gpu, list);
}

Time TurnTaking::next(Time now) const {
  if (!has_orders()) return Time::max();
  const bool is_deaf = outside_.shims != nullptr && outside_.shims->has_unheard();
  return std::min(conductor_.next(now), is_deaf ? now + kUnheardLook : Time::max());
}

}  // namespace gpushare
