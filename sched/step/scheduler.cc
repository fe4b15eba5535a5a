// SPDX-License-Identifier: Apache-2.0
#include "sched/step/scheduler.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "sched/step/buckets.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

// A process that wants the GPU and gets a smaller share than this waits.
constexpr double kNoTurns = 0.001;

// Of every step, while there are processes to look at.
constexpr Nanos kLookTime = std::chrono::microseconds(500);
// The most events that a step takes: some 2 ms of them. The next step takes the others.
constexpr uint64_t kMostEvents = 1024;

ProcessState state_of(const Enforcer::State& enforced, const Member& member, bool wants,
                      double share) {
  if (!enforced.can_control) return ProcessState::kObserveOnly;
  if (enforced.is_frozen) {
    switch (member.freeze) {
      case FreezeReason::kTurn:
        return ProcessState::kFrozenTurn;
      case FreezeReason::kUser:
        return ProcessState::kFrozenUser;
      case FreezeReason::kCap:
      case FreezeReason::kNone:  // about to be thawed
        return ProcessState::kFrozenCap;
    }
  }
  if (!wants) return ProcessState::kIdle;
  return share >= 0 && share < kNoTurns ? ProcessState::kWaiting : ProcessState::kRunning;
}

}  // namespace

Scheduler::Scheduler(const Surroundings& surroundings, const AgentIdentity& agent,
                     const Config& config)
    : outside_(surroundings),
      recovered_(recover(outside_.gpu, outside_.region, outside_.processes)),
      state_(
          outside_.gpu, outside_.region, outside_.tenants, outside_.clock,
          [this](const Enforcer::Change& change) { on_change(change); }, outside_.driver_calls),
      turns_(state_, outside_),
      membership_(state_, outside_.region, outside_.processes),
      config_(config),
      publisher_(state_, outside_, agent, config_),
      late_(outside_.gpu, outside_.observer, state_.registry, outside_.clock,
            outside_.driver_calls),
      by_slot_(kMaxProcesses) {
  state_.turns = &turns_;
  state_.tenant_use = published_use(outside_.region, outside_.tenants);
  const std::size_t all = outside_.gpu.gpus().size();
  if (all > kMaxGpus)
    log_warning("there are {} GPUs: those from the number {} on are left alone", all, kMaxGpus);
  for (const GpuInfo& gpu : driven_gpus(outside_.gpu))
    deciders_.push_back(
        {.gpu = {.index = gpu.index, .name = gpu.name, .geometry = geometry_of(gpu.sm_count)},
         .policy = nullptr});
  configure(config);
  disable_buckets(outside_.region);
  for (const ProcessId& process : recovered_.thawed)
    log_info("process {} was left frozen by an agent before: thawed", process.pid);
  for (const std::string& error : recovered_.errors) log_error("recovery: {}", error);
  late_.look_at_all();
}

Scheduler::~Scheduler() = default;

void Scheduler::configure(const Config& config) {
  for (Decider& decider : deciders_) {
    const GpuConfig& had = config_.gpu(decider.gpu.index);
    const GpuConfig& wanted = config.gpu(decider.gpu.index);
    decider.gpu.is_spatial = wanted.is_spatial;
    if (decider.policy != nullptr && had == wanted) continue;
    decider.policy = wanted.policy.make(decider.gpu);
    decider.is_fast = false;
    decider.takes_turns = wanted.policy.entry->needs.turns;
    if (!decider.takes_turns) turns_.drop_order(decider.gpu.index);
  }
  if (&config != &config_) config_ = config;
}

Time Scheduler::step() {
  const Time now = outside_.clock.now();
  ++state_.ticks;
  state_.enforcer.collect();
  const bool has_read = observe(now);
  Time next = state_.interference.undo();
  state_.enforcer.undo_leftovers(outside_.processes);
  if (now >= next_chores_) do_chores(now);
  const bool is_looking = late_.advance(kLookTime);
  const auto gpus = static_cast<uint32_t>(deciders_.size());
  if (const std::optional<Time> until = membership_.first_new_bearer())
    for (uint32_t gpu = 0; gpu < gpus; ++gpu) account_until(gpu, *until);
  bool is_changed = membership_.sync(now);
  if (buckets_of_ != outside_.tenants.generation()) {
    buckets_of_ = outside_.tenants.generation();
    configure_buckets(outside_.region, outside_.tenants, gpus, now);
    std::erase_if(state_.tenant_use,
                  [&](const auto& use) { return outside_.tenants.at(use.first) == nullptr; });
    is_changed = true;
  }
  bool has_accounted = gpus == 0;
  for (uint32_t gpu = 0; gpu < gpus; ++gpu) has_accounted |= account(gpu, now);
  charge_departed(now);
  failed_steps_ = has_read && has_accounted ? 0 : failed_steps_ + 1;
  refill_buckets(outside_.region, outside_.tenants, gpus, now);

  if (outside_.shims != nullptr) outside_.shims->read(now, state_.registry);
  state_.enforcer.begin_step();
  next = std::min(next, decide(now));
  if (gpus > 0) first_gpu_ = (first_gpu_ + 1) % gpus;
  if (outside_.shims != nullptr) next = std::min(next, outside_.shims->finish(now));
  note_states(now);

  const bool is_fast = std::ranges::any_of(deciders_, &Decider::is_fast);
  const Nanos tick = is_fast ? config_.agent.tick_fast : config_.agent.tick_slow;
  state_.tick = std::chrono::duration_cast<Micros>(tick);
  // What was published in the step in which a turn ends would else stand until the next one ends.
  is_changed |= turns_.has_changed();
  const Time publish_at = publisher_.publish(now, is_changed);
  next = std::min(next, publish_at);
  const bool is_published = publish_at == Time::max();
  if (is_published) outside_.tenants.reuse_slots();
  last_step_ = now;
  if (is_looking || has_more_events_ || state_.enforcer.is_behind()) return now;
  return std::min(next, now + tick);
}

// Whether all that it has on the GPUs is known to the plan.
bool Scheduler::is_met(const ProcessId& process) const {
  const Process* const known = state_.registry.find(process.pid);
  return known == nullptr || known->id != process ||
         std::ranges::all_of(known->holders, [&](const Holder& holder) {
           return state_.members.contains({process, holder.gpu});
         });
}

// Returns false when the source of events does not answer.
bool Scheduler::observe(Time now) {
  bool has_read = true;
  if (outside_.observer != nullptr) {
    const auto drained = outside_.observer->drain(
        [&](DriverEvent&& event) {
          ++state_.events;
          // A process that came and went between two steps becomes a member all the same.
          if (std::holds_alternative<ProcessClosed>(event.what) && !is_met(event.process))
            membership_.sync(now);
          state_.registry.apply(event);
          late_.note(event);
          state_.interference.note(event);
          if (std::holds_alternative<EventsLost>(event.what) && event.process.pid > 0)
            late_.look_at(event.process.pid);
        },
        kMostEvents);
    has_read = drained.has_value();
    has_more_events_ = drained.value_or(0) >= kMostEvents;
  }
  if (state_.registry.take_rescan_request()) {
    log_warning("events were lost: looking at every process again");
    late_.look_at_all();
  }
  return has_read;
}

void Scheduler::do_chores(Time now) {
  next_chores_ = now + kChores;
  log_false_claims();
  membership_.reap();
  membership_.name_users();
  late_.look_around();
  for (uint32_t gpu = 0; gpu < deciders_.size(); ++gpu) {
    if (!state_.accounting[gpu].needs_samples()) continue;
    if (const auto samples = outside_.gpu.utilisation(gpu))
      state_.accounting[gpu].sample(*samples, now);
  }
}

// Leaves what is later for account().
void Scheduler::account_until(uint32_t gpu, Time until) {
  if (!outside_.gpu.support().has_switch_log) return;
  auto batch = outside_.gpu.read_switches(gpu);
  if (!batch) return;  // account() will say so
  if (batch->complete_until <= until) return account(gpu, *batch);
  const auto later = std::ranges::partition_point(
      batch->records, [until](const SwitchRecord& record) { return record.time < until; });
  unread_[gpu] = {
      .records = {later, batch->records.end()}, .lost = 0, .complete_until = batch->complete_until};
  batch->records.erase(later, batch->records.end());
  batch->complete_until = until;
  account(gpu, *batch);
}

// At most once in a minute.
void Scheduler::log_false_claims() {
  if (outside_.observer == nullptr) return;
  const Observer::FalseClaims claims = outside_.observer->false_claims();
  const Time now = outside_.clock.now();
  if (claims.count == false_claims_ || now < next_claims_log_) return;
  false_claims_ = claims.count;
  next_claims_log_ = now + std::chrono::minutes(1);
  const Process* process = state_.registry.find(claims.last.pid);
  log_warning("process {} ({}) claims objects of the driver that it does not have: {} refused",
              claims.last.pid, process == nullptr ? "ended" : process->command, claims.count);
}

// Returns false when the GPU does not answer. It is asked again after pauses.
bool Scheduler::account(uint32_t gpu, Time now) {
  Decider& decider = deciders_[gpu];
  if (!decider.answers.may_try(now)) return false;
  // It must not hold us up, too. It comes back or not: to look for all GPUs again would not help.
  if (state_.enforcer.is_stuck(gpu)) {
    decider.failures = kStepsBeforeLost;
    if (state_.gpu_problems[gpu].empty())
      give_up(gpu, Error{std::make_error_code(std::errc::timed_out), "control the GPU", {}});
    return true;
  }
  Accounting& accounting = state_.accounting[gpu];
  if (const auto unread = unread_.extract(gpu)) account(gpu, unread.mapped());
  if (!outside_.gpu.support().has_switch_log) {
    accounting.consume({.records = {}, .lost = 0, .complete_until = outside_.clock.now()});
    return true;
  }
  const auto batch = outside_.gpu.read_switches(gpu);
  if (!batch) {
    if (++decider.failures == 1)
      log_warning("GPU {}: switch log: {}", gpu, batch.error().message());
    if (decider.failures < kStepsBeforeLost) return false;
    (void)decider.answers.failed(now, batch.error().message());
    if (decider.failures == kStepsBeforeLost) give_up(gpu, batch.error());
    return false;
  }
  if (std::exchange(decider.failures, 0) >= kStepsBeforeLost) {
    log_info("GPU {} answers again", gpu);
    decider.answers.succeeded();
    state_.gpu_problems[gpu].clear();
  }
  account(gpu, *batch);
  // One that runs and that no event told of has hidden its calls from the probe.
  for (const SwitchRecord& record : batch->records)
    if (record.is_start && record.pid > 0 && !state_.registry.is_on(record.pid, gpu))
      late_.look_at(record.pid);
  return true;
}

void Scheduler::account(uint32_t gpu, const SwitchBatch& batch) {
  state_.accounting[gpu].consume(batch);
  if (outside_.listener != nullptr)
    for (const SwitchRecord& record : batch.records) outside_.listener->on_switch(record);
}

void Scheduler::charge(const ProcessId& process, uint32_t tenant, uint32_t gpu, Nanos used) {
  state_.tenant_use[tenant].used[gpu] += used;
  if (is_serving(process)) {
    if (outside_.shims != nullptr) outside_.shims->add_server_use(gpu, used);
  } else if (!is_gated(process)) {
    outside_.region.tenants[tenant].buckets[gpu].charge(used);
  }
}

void Scheduler::charge_departed(Time now) {
  std::erase_if(state_.departed, [&](Departed& departed) {
    Accounting& accounting = state_.accounting[departed.gpu];
    if (departed.is_accounted) departed.owed += accounting.take_charge(departed.process.pid).used;
    const std::optional<uint32_t> tenant = state_.tenants.find(departed.tenant);
    if (departed.job != 0 && departed.owed > Nanos{}) turns_.add_late(departed.job, departed.owed);
    if (tenant) charge(departed.process, *tenant, departed.gpu, departed.owed);
    departed.owed = {};
    const bool is_over = !tenant || !departed.is_accounted || now >= departed.until;
    if (is_over && departed.is_accounted) accounting.remove(departed.process.pid);
    return is_over;
  });
}

// Nobody stays frozen on a GPU whose use cannot be read; the other ones go on.
void Scheduler::give_up(uint32_t gpu, const Error& error) {
  state_.gpu_problems[gpu] = fmt::format("GPU {} does not answer: {}", gpu, error.message());
  log_error("{}; it is left alone, and asked again now and then", state_.gpu_problems[gpu]);
  state_.enforcer.undo_all(gpu);
}

// Jobs may be on several GPUs: all are looked at before any is planned for, and all plans are there
// before one is carried out.
Time Scheduler::decide(Time now) {
  const auto gpus = static_cast<uint32_t>(deciders_.size());
  const auto for_each_gpu = [&](const auto& deed) {
    for (uint32_t i = 0; i < gpus; ++i)
      if (const uint32_t gpu = (first_gpu_ + i) % gpus; state_.gpu_problems[gpu].empty()) deed(gpu);
  };
  Time next = Time::max();
  for_each_gpu([&](uint32_t gpu) { view(gpu, now); });
  // Also once after the last policy that orders jobs has gone: who is held is let go.
  const bool has_turns = std::ranges::any_of(deciders_, &Decider::takes_turns) || turns_.has_told();
  if (has_turns) {
    turns_.begin();
    for_each_gpu([&](uint32_t gpu) {
      turns_.add(gpu, deciders_[gpu].takes_turns, deciders_[gpu].views.processes());
    });
    turns_.form(now);
  }
  give_gangs_turns(now);
  next = std::min(next, gangs_.next());
  for_each_gpu([&](uint32_t gpu) {
    plan(gpu, now);
    next = std::min(next, deciders_[gpu].plan.next);
  });
  if (has_turns) turns_.decide(now);
  for_each_gpu([&](uint32_t gpu) {
    enforce(gpu);
    Decider& decider = deciders_[gpu];
    if (outside_.shims != nullptr)
      outside_.shims->apply(now, gpu, decider.plan, decider.views.processes());
    state_.statuses[gpu] = std::move(decider.plan.statuses);
  });
  if (has_turns) turns_.carry_out(now);
  return next;
}

void Scheduler::plan(uint32_t gpu, Time now) {
  Decider& decider = deciders_[gpu];
  decider.gpu.switching = state_.accounting[gpu].switching();
  if (decider.takes_turns)
    decider.views.set_jobs(turns_.jobs(gpu),
                           [this](const ProcessId& process) { return turns_.job_of(process); });
  decider.plan = decider.policy->plan(decider.views.snapshot(now, decider.gpu));
  decider.is_fast = decider.plan.needs_fast_tick;
  if (decider.takes_turns) turns_.set_order(gpu, std::move(decider.plan.jobs));
}

// All that is known of one GPU now; what was used is charged.
void Scheduler::view(uint32_t gpu, Time now) {
  Views& views = deciders_[gpu].views;
  views.clear();
  for (const auto* entry : state_.members_on[gpu]) {
    const auto& [key, member] = *entry;
    const pid_t pid = key.first.pid;
    const Holder& holder = *state_.registry.holder(key.first, gpu);
    const Enforcer::State enforced = state_.enforcer.brief(holder);
    const Accounting::Charge charge = state_.accounting[gpu].take_charge(pid);
    this->charge(key.first, member.tenant, gpu, charge.used);

    by_slot_[member.slot] = &key;
    const bool is_frozen_by_user =
        member.is_frozen_by_user || outside_.tenants.at(member.tenant)->is_frozen_by_user;
    views.add({.id = member.slot,
               .process = key.first,
               .tenant = member.tenant,
               .wants_gpu = state_.accounting[gpu].wants_gpu(pid, now),
               .is_frozen = enforced.is_frozen,
               .is_frozen_by_user = is_frozen_by_user,
               .can_control = enforced.can_control,
               .slice = enforced.slice.value_or(ProcessView{}.slice),
               .share = state_.accounting[gpu].share(pid),
               .used = charge.used,
               .turns = charge.turns,
               .came = member.came,
               .memory_bytes = holder.memory_bytes,
               .command_line = member.command_line});
  }
  if (outside_.shims != nullptr) views.join(outside_.shims->views(gpu));
  views.add_tenants(gpu, outside_.tenants, outside_.region, outside_.shims);
}

// What the user froze is frozen, whether the policy has thought of it or not.
void Scheduler::enforce(uint32_t gpu) {
  Plan& plan = deciders_[gpu].plan;
  std::vector<bool> is_decided(kMaxProcesses);
  for (const Decision& decision : plan.decisions) is_decided[decision.process] = true;
  for (const ProcessView& process : deciders_[gpu].views.processes()) {
    if (!process.has_context || !process.can_control || is_decided[process.id]) continue;
    if (process.is_frozen_by_user)
      plan.decisions.push_back({.process = process.id, .freeze = FreezeReason::kUser, .target = 0});
    else if (deciders_[gpu].takes_turns)
      plan.decisions.push_back({.process = process.id});
  }
  if (deciders_[gpu].takes_turns) freeze_for_turns(gpu);
  freeze_for_gangs(gpu);
  targets_.clear();
  for (Decision& decision : plan.decisions) {
    const MemberKey& key = *by_slot_[decision.process];
    Member& member = state_.members.at(key);
    member.target = decision.target;
    member.freeze = decision.freeze;
    member.reason = std::move(decision.reason);
    const bool is_spared =
        is_serving(key.first) ||
        (outside_.shims != nullptr && outside_.shims->takes_freeze(key.first, decision.freeze));
    targets_.push_back({.holder = state_.registry.holder(key.first, gpu),
                        .slice = decision.slice,
                        .is_frozen = decision.freeze != FreezeReason::kNone && !is_spared});
  }
  state_.enforcer.apply(gpu, targets_);
}

// A freeze for another reason stays what it is.
void Scheduler::freeze_for_turns(uint32_t gpu) {
  for (Decision& decision : deciders_[gpu].plan.decisions) {
    const ProcessId& process = by_slot_[decision.process]->first;
    if (decision.freeze != FreezeReason::kNone || !turns_.is_frozen(process)) continue;
    decision.freeze = FreezeReason::kTurn;
    decision.reason = turns_.words(process);
  }
}

// Jobs on several GPUs that share them by slices. On one GPU alone there is none.
void Scheduler::give_gangs_turns(Time now) {
  seen_.clear();
  const bool may_be_any = config_.agent.gangs && deciders_.size() > 1;
  for (Decider& decider : may_be_any ? std::span(deciders_) : std::span<Decider>()) {
    const uint32_t gpu = decider.gpu.index;
    if (decider.takes_turns || decider.gpu.is_spatial || !state_.gpu_problems[gpu].empty())
      continue;
    for (const ProcessView& process : decider.views.processes()) {
      if (!process.has_context) continue;
      const Member& member = state_.members.at({process.process, gpu});
      const Tenant* const tenant = state_.tenants.at(process.tenant);
      const uint32_t run = state_.tenants.run_of(process.process).number;
      seen_.push_back(
          {.process = process.process,
           .gpu = gpu,
           .job =
               run != 0 ? GangTurns::Key{.run = run} : GangTurns::Key{.process = process.process},
           .priority = tenant == nullptr ? Priority::kNormal : tenant->settings.priority,
           .wants_gpu = process.wants_gpu,
           .can_hold = process.can_control && !process.is_frozen_by_user &&
                       !is_serving(process.process) && !is_gated(process.process),
           .cap = tenant != nullptr && tenant->settings.cap ? tenant->settings.cap->fraction() : 1,
           .used = process.used,
           .share = process.share,
           .target = member.target,
           .is_capped = member.freeze == FreezeReason::kCap});
    }
  }
  gangs_.look(now, seen_);
  if (!gangs_.holds_anybody()) return;
  for (Decider& decider : deciders_)
    decider.views.set_held([&](const ProcessId& process) {
      return gangs_.held(process, decider.gpu.index) != nullptr;
    });
}

// As for turns.
void Scheduler::freeze_for_gangs(uint32_t gpu) {
  if (!gangs_.holds_anybody()) return;
  for (Decision& decision : deciders_[gpu].plan.decisions) {
    const std::string* const why = gangs_.held(by_slot_[decision.process]->first, gpu);
    if (why == nullptr || decision.freeze == FreezeReason::kUser ||
        decision.freeze == FreezeReason::kCap)
      continue;
    decision.freeze = FreezeReason::kTurn;
    decision.reason = *why;
  }
}

void Scheduler::note_states(Time now) {
  const Nanos passed = last_step_ == Time{} ? Nanos{} : now - last_step_;
  throttled_.clear();
  for (auto& [key, member] : state_.members) {
    const auto& [id, gpu] = key;
    const Enforcer::State enforced = state_.enforcer.brief(*state_.registry.holder(id, gpu));
    const ProcessState state =
        state_of(enforced, member, state_.accounting[gpu].wants_gpu(id.pid, now),
                 state_.accounting[gpu].share(id.pid));
    if (member.state == ProcessState::kFrozenCap) {
      member.throttled += passed;
      throttled_.push_back(member.tenant);
    }
    if (state == member.state) continue;
    member.state = state;
    member.state_since = now;
  }
  std::ranges::sort(throttled_);
  throttled_.erase(std::unique(throttled_.begin(), throttled_.end()), throttled_.end());
  for (const uint32_t tenant : throttled_) state_.tenant_use[tenant].throttled += passed;
}

void Scheduler::on_change(const Enforcer::Change& change) {
  const auto member = state_.members.find({change.process, change.gpu});
  const FreezeReason reason =
      member == state_.members.end() ? FreezeReason::kNone : member->second.freeze;
  Accounting& accounting = state_.accounting[change.gpu];
  if (change.kind == Enforcer::Change::Kind::kSlice) {
    accounting.set_slice(change.process.pid, change.slice);
  } else {
    const bool is_frozen = change.kind == Enforcer::Change::Kind::kFreeze;
    accounting.set_frozen(change.process.pid, is_frozen, change.at);
    if (is_frozen && member != state_.members.end())
      ++state_.tenant_use[member->second.tenant].freezes;
  }
  if (outside_.listener != nullptr) outside_.listener->on_change(change, reason);
}

void Scheduler::stop() {
  state_.enforcer.undo_all();
  state_.enforcer.undo_leftovers(outside_.processes, /*at_once=*/true);
}

}  // namespace gpushare
