// SPDX-License-Identifier: Apache-2.0
#include "sched/step/scheduler.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "sched/account/buckets.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

// A process that wants the GPU and gets a smaller share than this waits.
constexpr double kNoTurns = 0.001;

// Of every step, while there are processes to look at.
constexpr Nanos kLookTime = std::chrono::microseconds(500);
// How often iterations' times are looked at: what a process counts in less than that before its end
// is not seen.
constexpr Nanos kBetweenCounts = std::chrono::milliseconds(100);
// The most events that a step takes: some 2 ms of them. The next step takes the others.
constexpr uint64_t kMostEvents = 1024;

// What counts the time in which processes of a tenant are in this state; null: nothing.
Nanos TenantUse::* sum_of_frozen(ProcessState state) {
  switch (state) {
    case ProcessState::kFrozenCap:
      return &TenantUse::throttled;
    case ProcessState::kFrozenTurn:
      return &TenantUse::frozen_turn;
    case ProcessState::kFrozenUser:
      return &TenantUse::frozen_user;
    default:
      return nullptr;
  }
}

ProcessState state_of(const Enforcer::State& enforced, const Member& member) {
  if (!enforced.can_control) return ProcessState::kObserveOnly;
  if (enforced.is_frozen) {
    switch (member.freeze) {
      case FreezeReason::kTurn:
        return ProcessState::kFrozenTurn;
      case FreezeReason::kUser:
        return ProcessState::kFrozenUser;
      case FreezeReason::kCap:
        return ProcessState::kFrozenCap;
      case FreezeReason::kNone:  // about to be thawed: for whatever it was frozen
        return sum_of_frozen(member.state) != nullptr ? member.state : ProcessState::kFrozenTurn;
    }
  }
  if (!member.wants_gpu) return ProcessState::kIdle;
  return member.share >= 0 && member.share < kNoTurns ? ProcessState::kWaiting
                                                      : ProcessState::kRunning;
}

}  // namespace

Scheduler::Scheduler(const Surroundings& surroundings, const AgentIdentity& agent,
                     const Config& config)
    : outside_(surroundings),
      state_(
          outside_.gpu, outside_.region, outside_.tenants, outside_.clock,
          [this](const Enforcer::Change& change) { on_change(change); }, outside_.make_line),
      owners_(state_, outside_.region, outside_.processes, outside_.gpu.support().driver_load),
      turns_(state_, outside_, owners_.former_jobs()),
      charging_(state_, outside_),
      gangs_(state_, charging_),
      membership_(state_, outside_.region, outside_.processes, owners_),
      config_(config),
      publisher_(state_, outside_, agent, config_),
      late_(outside_.gpu, outside_.observer, state_.registry, outside_.clock,
            outside_.driver_calls),
      ended_(outside_.gpu, state_.registry, outside_.clock, outside_.driver_calls),
      logs_(state_, outside_, late_),
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
  state_.enforcer.undo_leftovers(outside_.processes);  // of an agent before
  late_.look_at_all();
}

Scheduler::~Scheduler() = default;

void Scheduler::configure(const Config& config) {
  for (Decider& decider : deciders_) {
    const GpuConfig& had = config_.gpu(decider.gpu.index);
    const GpuConfig& wanted = config.gpu(decider.gpu.index);
    decider.gpu.is_spatial = wanted.is_spatial;
    decider.gpu.has_overlap = wanted.has_overlap;
    if (decider.policy != nullptr && had == wanted) continue;
    decider.policy = wanted.policy.make(decider.gpu);
    decider.is_fast = false;
    decider.takes_turns = wanted.policy.entry->needs.turns;
    if (!decider.takes_turns) turns_.drop_order(decider.gpu.index);
  }
  if (&config != &config_) config_ = config;
}

void Scheduler::join(uint32_t gpu) {
  if (gpu >= deciders_.size()) return;
  const GpuInfo& info = outside_.gpu.gpus()[gpu];
  Decider& decider = deciders_[gpu];
  decider.gpu.name = info.name;
  decider.gpu.geometry = geometry_of(info.sm_count);
  decider.policy = config_.gpu(gpu).policy.make(decider.gpu);
  state_.registry.learn(info);
  late_.look_at_all();  // what was found of programs before could not be told to be on it
}

Time Scheduler::step() {
  const Time now = outside_.clock.now();
  ++state_.ticks;
  state_.enforcer.collect();
  const bool has_read = observe(now);
  logs_.begin(now);  // it is read while the step goes on
  Time next = state_.interference.undo();
  state_.enforcer.undo_leftovers(outside_.processes);
  if (now >= next_chores_) do_chores(now);
  if (now >= next_sample_) {
    next_sample_ = now + kSamples;
    // In its own turn, a gang or a program beside it is as alone as without others.
    logs_.sample([this](uint32_t gpu) { return gangs_.turns().wants_samples(gpu); });
  }
  const bool is_looking = late_.advance(kLookTime);
  ended_.look();
  next = std::min(next, ended_.next());
  const auto gpus = static_cast<uint32_t>(deciders_.size());
  bool is_changed = membership_.sync(now);
  if (buckets_of_ != outside_.tenants.generation()) {
    buckets_of_ = outside_.tenants.generation();
    configure_buckets(outside_.region, outside_.tenants, gpus, now);
    std::erase_if(state_.tenant_use,
                  [&](const auto& use) { return outside_.tenants.at(use.first) == nullptr; });
    charging_.forget_caps();
    is_changed = true;
  }
  charging_.hear_the_young(now);
  const bool has_accounted = logs_.read(now);
  logs_.take_samples();
  charging_.charge_departed(turns_, logs_, now);
  state_.interference.look_for_standstills(state_, outside_.shims);
  failed_steps_ = has_read && has_accounted ? 0 : std::min(failed_steps_ + 1, kStepsBeforeLost);

  if (outside_.shims != nullptr) outside_.shims->read(now, state_.registry);
  state_.enforcer.begin_step();
  next = std::min(next, decide(now));
  if (gpus > 0) first_gpu_ = (first_gpu_ + 1) % gpus;
  if (outside_.shims != nullptr) next = std::min(next, outside_.shims->finish(now));
  note_states(now);
  count_iterations(now);

  const bool is_fast = std::ranges::any_of(deciders_, &Decider::is_fast);
  const Nanos tick = is_fast ? config_.agent.tick_fast : config_.agent.tick_slow;
  state_.tick = std::chrono::duration_cast<Micros>(tick);
  // What was published in the step in which a turn ends would else stand until the next one ends.
  is_changed |= turns_.has_changed();
  next = std::min(next, owners_.keep(now));
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
  const Process* const known = state_.registry.find(process);
  return known == nullptr || std::ranges::all_of(known->holders, [&](const Holder& holder) {
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
          // What came and goes between two steps becomes a member all the same.
          const bool goes = std::holds_alternative<ProcessClosed>(event.what) ||
                            std::holds_alternative<ObjectFreed>(event.what);
          if (goes && !is_met(event.process)) membership_.sync(now);
          if (const auto* closed = std::get_if<ProcessClosed>(&event.what);
              closed != nullptr && !closed->by_exec)
            turns_.note_end(event.process, closed->status);
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
  membership_.reap(now);
  owners_.reap();
  membership_.look_again();
  late_.look_around();
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
  for (uint32_t gpu = 0; gpu < gpus; ++gpu)
    if (!state_.gpu_problems[gpu].empty()) charging_.settle(gpu, deciders_[gpu].takes_turns, now);
  // Also once after the last policy that orders jobs has gone: who is held is let go.
  const bool has_turns = std::ranges::any_of(deciders_, &Decider::takes_turns) || turns_.has_told();
  if (has_turns) {
    // What was planned last for one that is left alone says nothing of the jobs on the others.
    for (uint32_t gpu = 0; gpu < gpus; ++gpu)
      if (!state_.gpu_problems[gpu].empty()) turns_.drop_order(gpu);
    if (last_step_ != Time{}) turns_.add_held(now - last_step_);
    turns_.begin();
    for_each_gpu([&](uint32_t gpu) {
      turns_.add(gpu, deciders_[gpu].takes_turns, deciders_[gpu].views.processes(), now);
    });
    turns_.form(now);
    next = std::min(next, turns_.next_step(now));
  }
  gpus_.clear();
  for (Decider& decider : deciders_)
    gpus_.push_back({.gpu = decider.gpu.index,
                     .is_sliced = !decider.takes_turns && !decider.gpu.is_spatial,
                     .views = &decider.views});
  gangs_.look(now, gpus_, config_.agent.gangs);
  next = std::min(next, gangs_.turns().next());
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
  if (decider.takes_turns) {
    const std::span<JobView> jobs = turns_.jobs(gpu);
    for (JobView& job : jobs) job.tenant = tenant_in_view(job.tenant, gpu);
    decider.views.set_jobs(jobs,
                           [this](const ProcessId& process) { return turns_.job_of(process); });
  }
  decider.plan = decider.policy->plan(decider.views.snapshot(now, decider.gpu));
  decider.is_fast = decider.plan.needs_fast_tick;
  if (decider.takes_turns) turns_.set_order(gpu, std::move(decider.plan.jobs));
}

// Where slices are set the enforcer says so. Where jobs take turns programs may have their own.
void Scheduler::note_slices(const Holder& holder) {
  std::optional<Micros> longest;
  for (const ComputeGroup& group : holder.groups)
    longest = std::max(longest, state_.enforcer.slice(holder, group));
  Accounting& accounting = state_.accounting[holder.gpu];
  if (longest) accounting.set_slice(holder.process.pid, *longest);
  accounting.set_groups(holder.process.pid, static_cast<uint32_t>(holder.groups.size()));
}

void Scheduler::look_at_account(const MemberKey& key, Member& member, Time now) {
  const auto& [process, gpu] = key;
  member.wants_gpu = state_.accounting[gpu].wants_gpu(process.pid, now);
  member.share = state_.accounting[gpu].share(process.pid);
}

// Who shares the SMs of a GPU are the tenants at the top of the tree: all below one are in its
// partition.
uint32_t Scheduler::tenant_in_view(uint32_t tenant, uint32_t gpu) const {
  return deciders_[gpu].gpu.is_spatial ? outside_.tenants.top_of(tenant) : tenant;
}

// All that is known of one GPU now; what was used is charged.
void Scheduler::view(uint32_t gpu, Time now) {
  Views& views = deciders_[gpu].views;
  views.clear();
  for (auto* entry : state_.members_on[gpu]) {
    auto& [key, member] = *entry;
    const Holder& holder = *member.holder;
    const Enforcer::State enforced = state_.enforcer.brief(holder);
    if (deciders_[gpu].takes_turns) note_slices(holder);
    look_at_account(key, member, now);
    const Accounting::Charge charge = state_.accounting[gpu].take_charge(key.first.pid);
    charging_.charge(key.first, member.tenant, gpu, charge);

    by_slot_[member.slot] = entry;
    const Tenant& tenant = *outside_.tenants.at(member.tenant);
    const bool is_frozen_by_user = member.is_frozen_by_user || tenant.is_frozen;
    views.add({.id = member.slot,
               .process = key.first,
               .tenant = tenant_in_view(member.tenant, gpu),
               .wants_gpu = member.wants_gpu,
               .is_frozen = enforced.is_frozen,
               .is_frozen_by_user = is_frozen_by_user,
               .can_control = enforced.can_control,
               .slice = enforced.slice.value_or(ProcessView{}.slice),
               .share = member.share,
               .used = charge.gross(),
               .returned = charge.returned,
               .turns = charge.turns,
               .came = member.came,
               .memory_bytes = holder.memory_bytes,
               .command_line = member.command_line});
  }
  charging_.settle(gpu, deciders_[gpu].takes_turns, now);
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
  gangs_.freeze(gpu, plan, by_slot_);
  targets_.clear();
  for (Decision& decision : plan.decisions) {
    auto& [key, member] = *by_slot_[decision.process];
    member.target = decision.target;
    member.freeze = decision.freeze;
    member.reason = std::move(decision.reason);
    const bool is_spared =
        charging_.is_serving(key.first) ||
        (outside_.shims != nullptr && outside_.shims->takes_freeze(key.first, decision.freeze));
    targets_.push_back({.holder = member.holder,
                        .slice = decision.slice,
                        .is_frozen = decision.freeze != FreezeReason::kNone && !is_spared});
  }
  state_.enforcer.apply(gpu, targets_,
                        plan.freezes_first ? SwitchOrder::kFreezesFirst : SwitchOrder::kThawsFirst);
}

// A freeze for another reason stays what it is.
void Scheduler::freeze_for_turns(uint32_t gpu) {
  for (Decision& decision : deciders_[gpu].plan.decisions) {
    const ProcessId& process = by_slot_[decision.process]->first.first;
    if (decision.freeze != FreezeReason::kNone || !turns_.is_frozen(process)) continue;
    decision.freeze = FreezeReason::kTurn;
    decision.reason = turns_.words(process);
  }
}

void Scheduler::note_states(Time now) {
  const Nanos passed = last_step_ == Time{} ? Nanos{} : now - last_step_;
  frozen_.clear();
  for (auto& [key, member] : state_.members) {
    const uint32_t gpu = key.second;
    if (!state_.gpu_problems[gpu].empty()) look_at_account(key, member, now);
    const ProcessState state = state_of(state_.enforcer.brief(*member.holder), member);
    if (member.state == ProcessState::kFrozenCap) member.throttled += passed;
    if (sum_of_frozen(member.state) != nullptr) frozen_.emplace_back(member.tenant, member.state);
    if (state == member.state) continue;
    member.state = state;
    member.state_since = now;
  }
  // Of a tenant time passes once, however many of its processes are frozen.
  std::ranges::sort(frozen_);
  const auto [rest, end] = std::ranges::unique(frozen_);
  frozen_.erase(rest, end);
  for (const auto& [tenant, state] : frozen_)
    state_.tenant_use[tenant].*sum_of_frozen(state) += passed;
}

// What the processes with the shim have counted since the last step is their tenants'.
void Scheduler::count_iterations(Time now) {
  if (outside_.shims == nullptr || now < next_count_) return;
  next_count_ = now + kBetweenCounts;
  std::map<ProcessId, IterationCounts> known;
  for (const auto& [key, member] : state_.members) {
    const ProcessId& process = key.first;
    if (known.contains(process)) continue;  // it is on several GPUs
    const std::optional<TimeHistogram> said = outside_.shims->times(process);
    if (!said) continue;
    const auto before = iteration_counts_.find(process);
    IterationCounts& counts =
        known
            .emplace(process,
                     before == iteration_counts_.end() ? IterationCounts{} : before->second)
            .first->second;
    const TimeHistogram gain = counts.take(*said, now);
    if (gain != TimeHistogram{}) add(state_.tenant_use[member.tenant].iterations, gain);
  }
  iteration_counts_ = std::move(known);
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

// What is presumed nobody will settle. What was counted is published for the agent that comes.
void Scheduler::stop() {
  (void)membership_.sync(outside_.clock.now());  // a tenant may have gone since the last step
  for (auto& [tenant, use] : state_.tenant_use)
    for (size_t gpu = 0; gpu < use.used.size(); ++gpu)
      use.used[gpu] += std::exchange(use.presumed[gpu], Nanos{});
  owners_.keep_last(outside_.clock.now());
  publisher_.publish_last(outside_.clock.now());
  state_.enforcer.undo_all();
  state_.enforcer.undo_leftovers(outside_.processes, /*at_once=*/true);
}

}  // namespace gpushare
