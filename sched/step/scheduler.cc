// SPDX-License-Identifier: Apache-2.0
#include "sched/step/scheduler.h"

#include <algorithm>
#include <utility>

#include "sched/policy/policies.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

// A process that wants the GPU and gets less than this waits.
constexpr double kNoTurns = 0.001;

// Of every step, while there are processes to look at.
constexpr Nanos kLookTime{500'000};

ProcessState state_of(const Enforcer::State& enforced, const Member& member, bool wants,
                      double share) {
  if (!enforced.can_control) return ProcessState::kObserveOnly;
  if (enforced.is_frozen) {
    switch (member.reason) {
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

Scheduler::Scheduler(const Surroundings& surroundings, const AgentConfig& config)
    : outside_(surroundings),
      recovered_(recover(outside_.gpu, outside_.region, outside_.processes)),
      state_(outside_.gpu, outside_.region, outside_.tenants, outside_.clock,
             [this](const Enforcer::Change& change) { on_change(change); }),
      membership_(state_, outside_.region, outside_.processes),
      publisher_(state_, outside_.gpu, outside_.region),
      late_(outside_.gpu, outside_.observer, state_.registry, outside_.clock),
      by_slot_(kMaxProcesses),
      is_viewed_(kMaxTenants) {
  configure(config);
  for (TenantSlot& tenant : outside_.region.tenants)
    for (TokenBucket& bucket : tenant.buckets)
      if (bucket.is_enabled()) bucket.disable();
  for (const ProcessId& process : recovered_.thawed)
    log_info("process {} was left frozen by an agent before: thawed", process.pid);
  for (const std::string& error : recovered_.errors) log_error("recovery: {}", error);
  late_.look_at_all();
}

Scheduler::~Scheduler() = default;

void Scheduler::configure(const AgentConfig& config) {
  const PolicyOptions &had = config_.policy_options, &wanted = config.policy_options;
  const bool is_same_policy =
      config.policy == config_.policy && had.min_slice == wanted.min_slice &&
      had.round_target == wanted.round_target && had.idle_turn == wanted.idle_turn;
  config_ = config;
  if (is_same_policy && !policies_.empty()) return;
  policies_.clear();
  for (std::size_t i = 0; i < outside_.gpu.gpus().size(); ++i)
    policies_.push_back(make_policy(config.policy, config.policy_options));
  is_fast_.assign(policies_.size(), false);
}

Time Scheduler::step() {
  const Time now = outside_.clock.now();
  ++state_.ticks;
  const bool has_read = observe();
  if (now >= next_chores_) do_chores(now);
  const bool is_looking = late_.advance(kLookTime);
  bool is_changed = membership_.sync(now);
  if (buckets_of_ != outside_.tenants.generation()) {
    configure_buckets(now);
    is_changed = true;
  }

  Time next = Time::max();
  const auto gpus = static_cast<uint32_t>(policies_.size());
  bool has_accounted = gpus == 0;
  for (uint32_t gpu = 0; gpu < gpus; ++gpu) has_accounted |= account(gpu);
  failed_steps_ = has_read && has_accounted ? 0 : failed_steps_ + 1;
  settle_buckets(now);
  for (uint32_t gpu = 0; gpu < gpus; ++gpu) next = std::min(next, decide(gpu, now));
  note_states(now);

  const bool is_fast = std::ranges::find(is_fast_, true) != is_fast_.end();
  const Nanos tick = is_fast ? config_.tick_fast : config_.tick_slow;
  state_.tick = std::chrono::duration_cast<Micros>(tick);
  const uint64_t dropped = outside_.observer == nullptr ? 0 : outside_.observer->dropped();
  publisher_.publish(now, dropped, is_changed);
  last_step_ = now;
  if (is_looking) return now;
  return std::min(next, now + tick);
}

// False: the source of events does not answer.
bool Scheduler::observe() {
  bool has_read = true;
  if (outside_.observer != nullptr) {
    const auto drained = outside_.observer->drain([this](DriverEvent&& event) {
      ++state_.events;
      state_.registry.apply(event);
      late_.note(event);
    });
    has_read = drained.has_value();
  }
  if (state_.registry.take_rescan_request()) {
    log_warning("events were lost: looking at every process again");
    late_.look_at_all();
  }
  return has_read;
}

void Scheduler::do_chores(Time now) {
  next_chores_ = now + kChores;
  membership_.reap();
  late_.look_around();
  for (uint32_t gpu = 0; gpu < policies_.size(); ++gpu) {
    if (!state_.accounting[gpu].needs_samples()) continue;
    if (const auto samples = outside_.gpu.utilisation(gpu))
      state_.accounting[gpu].sample(*samples, now);
  }
}

// False: the GPU does not answer.
bool Scheduler::account(uint32_t gpu) {
  Accounting& accounting = state_.accounting[gpu];
  if (!outside_.gpu.support().has_switch_log) {
    accounting.consume({.records = {}, .lost = 0, .complete_until = outside_.clock.now()});
    return true;
  }
  const auto batch = outside_.gpu.read_switches(gpu);
  if (!batch) {
    if (failed_steps_ == 0) log_warning("switch log: {}", batch.error().message());
    return false;
  }
  accounting.consume(*batch);
  if (!listener_.on_switch) return true;
  for (const SwitchRecord& record : batch->records) listener_.on_switch(record);
  return true;
}

void Scheduler::configure_buckets(Time now) {
  buckets_of_ = outside_.tenants.generation();
  for (uint32_t slot = 0; slot < kMaxTenants; ++slot) {
    const Tenant* tenant = outside_.tenants.at(slot);
    if (tenant == nullptr) state_.tenant_use.erase(slot);
    for (uint32_t gpu = 0; gpu < policies_.size() && gpu < kMaxGpus; ++gpu) {
      TokenBucket& bucket = outside_.region.tenants[slot].buckets[gpu];
      if (tenant != nullptr && tenant->settings.cap) {
        const Cap& cap = *tenant->settings.cap;
        bucket.configure(cap.quota, cap.period, cap.quota, now);
      } else if (bucket.is_enabled()) {
        bucket.disable();
      }
    }
  }
}

void Scheduler::settle_buckets(Time now) {
  for (const uint32_t slot : outside_.tenants.slots()) {
    if (!outside_.tenants.at(slot)->settings.cap) continue;
    for (uint32_t gpu = 0; gpu < policies_.size() && gpu < kMaxGpus; ++gpu)
      outside_.region.tenants[slot].buckets[gpu].refill(now);
  }
}

Time Scheduler::decide(uint32_t gpu, Time now) {
  tenant_views_.clear();
  process_views_.clear();
  for (const auto& [key, member] : state_.members) {
    if (key.second != gpu) continue;
    const pid_t pid = key.first.pid;
    const Enforcer::State enforced = state_.enforcer.state(*state_.registry.holder(key.first, gpu));
    const Accounting::Charge charge = state_.accounting[gpu].take_charge(pid);
    TenantUse& use = state_.tenant_use[member.tenant];
    use.used[gpu] += charge.used;
    if (!is_gated(key.first) && !is_serving(key.first))
      outside_.region.tenants[member.tenant].buckets[gpu].charge(charge.used);

    by_slot_[member.slot] = &key;
    process_views_.push_back({.id = member.slot,
                              .tenant = member.tenant,
                              .wants_gpu = state_.accounting[gpu].wants_gpu(pid, now),
                              .is_frozen = enforced.is_frozen,
                              .is_frozen_by_user = member.is_frozen_by_user,
                              .can_control = enforced.can_control,
                              .slice = enforced.slice.value_or(ProcessView{}.slice),
                              .share = state_.accounting[gpu].share(pid),
                              .used = charge.used,
                              .turns = charge.turns,
                              .cap = std::nullopt});
  }
  for (const ProcessView& process : process_views_) {
    if (is_viewed_[process.tenant]) continue;
    is_viewed_[process.tenant] = true;
    const Tenant& tenant = *outside_.tenants.at(process.tenant);
    TenantView& view = tenant_views_.emplace_back();
    view.id = process.tenant;
    view.weight = tenant.settings.weight;
    view.priority = tenant.settings.priority;
    view.is_frozen_by_user = tenant.is_frozen_by_user;
    if (tenant.settings.cap) {
      const Cap& cap = *tenant.settings.cap;
      view.cap = CapView{.fraction = cap.fraction(),
                         .period = cap.period,
                         .burst = cap.quota,
                         .tokens = outside_.region.tenants[process.tenant].buckets[gpu].tokens()};
    }
  }
  for (const TenantView& view : tenant_views_) is_viewed_[view.id] = false;
  const Plan plan =
      policies_[gpu]->plan({.now = now, .tenants = tenant_views_, .processes = process_views_});
  is_fast_[gpu] = plan.needs_fast_tick;
  enforce(gpu, plan);
  return plan.next;
}

void Scheduler::enforce(uint32_t gpu, const Plan& plan) {
  targets_.clear();
  for (const Decision& decision : plan.decisions) {
    const MemberKey& key = *by_slot_[decision.process];
    Member& member = state_.members.at(key);
    member.target = decision.target;
    member.reason = decision.freeze;
    const bool is_spared =
        is_serving(key.first) || (decision.freeze == FreezeReason::kCap && is_gated(key.first));
    targets_.push_back({.holder = state_.registry.holder(key.first, gpu),
                        .slice = decision.slice,
                        .is_frozen = decision.freeze != FreezeReason::kNone && !is_spared});
  }
  state_.enforcer.apply(gpu, targets_);
}

void Scheduler::note_states(Time now) {
  const Nanos passed = last_step_ == Time{} ? Nanos{} : now - last_step_;
  throttled_.clear();
  for (auto& [key, member] : state_.members) {
    const auto& [id, gpu] = key;
    const Enforcer::State enforced = state_.enforcer.state(*state_.registry.holder(id, gpu));
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
      member == state_.members.end() ? FreezeReason::kNone : member->second.reason;
  if (change.kind != Enforcer::Change::Kind::kSlice) {
    const bool is_frozen = change.kind == Enforcer::Change::Kind::kFreeze;
    state_.accounting[change.gpu].set_frozen(change.process.pid, is_frozen, change.at);
    if (is_frozen && member != state_.members.end())
      ++state_.tenant_use[member->second.tenant].freezes;
  }
  if (listener_.on_change) listener_.on_change(change, reason);
}

Result<> Scheduler::set_frozen(pid_t pid, bool is_frozen) {
  bool is_known = false;
  for (auto& [key, member] : state_.members) {
    if (key.first.pid != pid) continue;
    member.is_frozen_by_user = is_frozen;
    is_known = true;
  }
  if (!is_known)
    return make_error(std::errc::no_such_process, "find process",
                      "process " + std::to_string(pid) + " has nothing on a GPU");
  return {};
}

void Scheduler::stop() { state_.enforcer.undo_all(); }

}  // namespace gpushare
