// SPDX-License-Identifier: Apache-2.0
#include "sched/module/usage_report.h"

#include <algorithm>
#include <cmath>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

// The values of the attribute `sharing`, see kmod/ABI.
constexpr const char* kByTime = "time-slicing";
constexpr const char* kSpatially = "spatial";

Micros micros(Nanos time) { return std::chrono::duration_cast<Micros>(time); }

// Of its cap, or of the first that it has on a single GPU; zero: it has none.
Nanos period_of(const Tenant& tenant) {
  if (tenant.settings.cap) return tenant.settings.cap->period;
  return tenant.gpu_caps.empty() ? Nanos{} : Nanos(tenant.gpu_caps.begin()->second.period);
}

// What the files showed beyond what is counted on from.
template <class T>
T besides(T shown, T counted) {
  return shown - std::min(shown, counted);
}

// The use of each tenant with that of all below it.
std::map<uint32_t, TenantUse> uses_with_below(const State& state) {
  std::map<uint32_t, TenantUse> uses = state.tenant_use;
  for (const auto& [slot, use] : state.tenant_use) {
    const Tenant* const tenant = state.tenants.at(slot);
    if (tenant == nullptr) continue;
    for (const uint32_t above : tenant->above) {
      TenantUse& sum = uses[above];
      for (size_t gpu = 0; gpu < use.used.size(); ++gpu) sum.used[gpu] += use.used[gpu];
      sum.throttled += use.throttled;
      sum.freezes += use.freezes;
      sum.turns += use.turns;
      sum.held += use.held;
    }
  }
  return uses;
}

// Adds sums; the averages of pressure and the share are `sum`'s own.
void add(kmod::TenantUsage& sum, const kmod::TenantUsage& more) {
  sum.gpu_time += more.gpu_time;
  sum.throttled += more.throttled;
  sum.freezes += more.freezes;
  sum.periods += more.periods;
  sum.throttled_periods += more.throttled_periods;
  sum.turns += more.turns;
  sum.held += more.held;
  sum.some.total += more.some.total;
  sum.full.total += more.full.total;
  for (size_t gpu = 0; gpu < sum.by_gpu.size(); ++gpu) sum.by_gpu[gpu] += more.by_gpu[gpu];
}

// The use of every tenant, in the order of their slots. The share is that of all GPUs together:
// 1000 is every GPU all the time. `uses`: those with what is below.
std::vector<kmod::TenantUsage> usages_of(const State& state,
                                         const std::map<uint32_t, TenantUse>& uses) {
  std::map<uint32_t, double> shares;  // by slot; a tenant of which no share is known is missing
  for (const auto& [key, member] : state.members) {
    const auto& [process, gpu] = key;
    const double share = state.accounting[gpu].share(process.pid);
    if (share < 0 || state.tenants.at(member.tenant) == nullptr) continue;  // it is gone since
    state.tenants.for_line(member.tenant,
                           [&](uint32_t slot, const Tenant&) { shares[slot] += share; });
  }
  std::vector<kmod::TenantUsage> usages;
  for (const uint32_t slot : state.tenants.slots()) {
    kmod::TenantUsage& usage = usages.emplace_back();
    usage.tenant = state.tenants.at(slot)->name;
    const auto share = shares.find(slot);
    if (share != shares.end() && !state.accounting.empty()) {
      const double part = share->second / static_cast<double>(state.accounting.size());
      usage.share_permille = static_cast<uint32_t>(std::lround(std::min(part, 1.0) * 1000));
    }
    const auto use = uses.find(slot);
    if (use == uses.end()) continue;
    Nanos used{};
    for (const Nanos on_gpu : use->second.used) used += on_gpu;
    usage.gpu_time = micros(used);
    usage.throttled = micros(use->second.throttled);
    usage.freezes = use->second.freezes;
    usage.turns = use->second.turns;
    usage.held = micros(use->second.held);
  }
  return usages;
}

}  // namespace

void UsageReport::start_over(const State& state) {
  before_.clear();
  published_.clear();
  slots_.clear();
  waits_.clear();
  used_.clear();
  looked_at_ = {};
  for (const kmod::TenantUsage& counted : usages_of(state, uses_with_below(state))) {
    const std::string& name = counted.tenant;
    const auto micros_of = [&](const char* file) {
      return Micros(static_cast<int64_t>(tree_.counter(name, file).value_or(0)));
    };
    const auto total_of = [&](const char* line) {
      return Micros(
          static_cast<int64_t>(tree_.counter(name, "pressure", line, "total=").value_or(0)));
    };
    before_[name] = {
        .tenant = name,
        .gpu_time = besides(micros_of("gpu_time_us"), counted.gpu_time),
        .throttled = besides(micros_of("throttled_us"), counted.throttled),
        .freezes = besides(tree_.counter(name, "freezes").value_or(0), counted.freezes),
        .periods = tree_.counter(name, "stat", "nr_periods ").value_or(0),
        .throttled_periods = tree_.counter(name, "stat", "nr_throttled ").value_or(0),
        .turns = besides(tree_.counter(name, "turns").value_or(0), counted.turns),
        .held = besides(micros_of("held_us"), counted.held),
        .some = {.total = total_of("some ")},
        .full = {.total = total_of("full ")},
        .share_permille = std::nullopt};
  }
}

// Adds what the tenants waited since the last look.
void UsageReport::look(Time now, const State& state, const std::map<uint32_t, TenantUse>& uses) {
  const Nanos passed = looked_at_ == Time{} ? Nanos{} : now - looked_at_;
  looked_at_ = now;
  std::map<uint32_t, std::vector<Turn>> turns;  // by tenant slot
  std::map<MemberKey, Nanos> used;
  for (const auto& [key, member] : state.members) {
    const auto& [process, gpu] = key;
    const Nanos total = state.accounting[gpu].use(process.pid, now).total;
    const auto before = used_.find(key);
    used[key] = total;
    if (before == used_.end()) continue;
    const Turn turn{.gpu = gpu,
                    .is_at_once = spatial_.contains(gpu),
                    .wants_gpu = state.accounting[gpu].wants_gpu(process.pid, now),
                    .used = total - before->second};
    if (state.tenants.at(member.tenant) == nullptr) continue;  // it is gone since
    state.tenants.for_line(member.tenant,
                           [&](uint32_t slot, const Tenant&) { turns[slot].push_back(turn); });
  }
  used_ = std::move(used);
  std::erase_if(waits_, [&](const auto& item) { return !state.tenants.find(item.first); });
  for (const uint32_t slot : state.tenants.slots()) {
    const Tenant& tenant = *state.tenants.at(slot);
    const auto use = uses.find(slot);
    const Nanos throttled = use == uses.end() ? Nanos{} : use->second.throttled;
    Waits& waits = waits_.try_emplace(tenant.name, Waits{.throttled = throttled}).first->second;
    const std::vector<Turn>& own = turns[slot];
    const Waited waited = gpushare::waited(own, passed);
    waits.some.add(waited.some, passed);
    waits.full.add(waited.full, passed);
    const bool has_work = std::ranges::any_of(own, &Turn::wants_gpu);
    waits.periods.add(now, passed, period_of(tenant), has_work, throttled - waits.throttled);
    waits.throttled = throttled;
  }
}

void UsageReport::put_gpus(kmod::TenantUsage& usage, const std::map<uint32_t, TenantUse>& uses,
                           const State& state) const {
  const auto slot = state.tenants.find(usage.tenant);
  const auto use = slot ? uses.find(*slot) : uses.end();
  if (use == uses.end()) return;
  for (const auto& [gpu, instance] : instances_)
    usage.by_gpu[instance] = micros(use->second.used[gpu]);
}

void UsageReport::put_waits(kmod::TenantUsage& usage) const {
  const auto found = waits_.find(usage.tenant);
  if (found == waits_.end()) return;
  const auto figures = [](const Pressure& pressure) {
    const auto part = [](double average) {
      return static_cast<uint32_t>(std::lround(std::clamp(average, 0.0, 1.0) * 10'000));
    };
    return kmod::PressureFigures{.total = micros(pressure.total()),
                                 .avg10 = part(pressure.avg10()),
                                 .avg60 = part(pressure.avg60()),
                                 .avg300 = part(pressure.avg300())};
  };
  usage.some = figures(found->second.some);
  usage.full = figures(found->second.full);
  usage.periods = found->second.periods.periods();
  usage.throttled_periods = found->second.periods.throttled();
}

// A counter never falls: what a tenant that is gone was last said to have used stays with those
// above it. Of a part of the tree that is gone only the highest is looked at, which has all below
// it.
void UsageReport::keep_what_is_gone(const State& state) {
  const auto is_there = [&](std::string_view name) {
    const auto slot = slots_.find(name);
    return slot == slots_.end() ? state.tenants.find(name).has_value()
                                : state.tenants.find(name) == slot->second;
  };
  for (const auto& [name, usage] : published_) {
    std::string_view above = name_above(name);
    if (is_there(name) || !is_there(above)) continue;
    kmod::TenantUsage gone = usage;
    gone.periods = gone.throttled_periods = 0;  // those of a cap are its own
    gone.some = gone.full = {};                 // waits are looked at with those below
    for (; !above.empty(); above = name_above(above)) add(before_[std::string(above)], gone);
  }
  std::erase_if(published_, [&](const auto& item) { return !is_there(item.first); });
  std::erase_if(before_, [&](const auto& item) { return !is_there(item.first); });
  slots_.clear();
  for (const uint32_t slot : state.tenants.slots()) slots_[state.tenants.at(slot)->name] = slot;
}

void UsageReport::publish(Time now, const State& state) {
  if (now < next_) return;
  next_ = now + kInterval;
  const std::map<uint32_t, TenantUse> uses = uses_with_below(state);
  look(now, state, uses);
  std::vector<kmod::TenantUsage> usages = usages_of(state, uses);
  keep_what_is_gone(state);
  for (kmod::TenantUsage& usage : usages) {
    put_waits(usage);
    put_gpus(usage, uses, state);
    if (const auto before = before_.find(usage.tenant); before != before_.end())
      add(usage, before->second);
  }
  std::map<std::string, kmod::TenantUsage> present;
  for (const kmod::TenantUsage& usage : usages) present.emplace(usage.tenant, usage);
  std::erase_if(usages, [&](const kmod::TenantUsage& usage) {
    const auto before = published_.find(usage.tenant);
    return before != published_.end() && before->second == usage;
  });
  const Result<> done = kmod::publish(device_, usages);
  log_failure(done);
  if (done) published_ = std::move(present);
}

void UsageReport::describe(std::span<const GpuInfo> gpus, const Config& config) {
  spatial_.clear();
  instances_.clear();
  for (const GpuInfo& gpu : gpus) {
    const bool is_spatial = config.gpu(gpu.index).is_spatial;
    if (is_spatial) spatial_.insert(gpu.index);
    if (gpu.index < kMaxGpus && gpu.instance < GPUSHARE_MAX_GPUS)
      instances_[gpu.index] = gpu.instance;
    if (gpu.instance == kNoInstance) continue;  // it is told when it is open
    const std::string_view policy = config.gpu(gpu.index).policy.entry->name;
    const char* const sharing = is_spatial ? kSpatially : kByTime;
    if (const auto done = kmod::set_gpu(device_, gpu, sharing, policy); !done) log_failure(done);
  }
  if (const auto done = kmod::set_policy(device_, config.policy_names(gpus.size())); !done)
    log_failure(done);
}

void UsageReport::log_failure(const Result<>& done) {
  if (!done && !has_failed_) log_warning("{}", done.error().message());
  has_failed_ = !done;
}

}  // namespace gpushare
