// SPDX-License-Identifier: Apache-2.0
#include "sched/usage/meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "sched/policy/policy.h"
#include "shmctl/settings/tenant_settings.h"

namespace gpushare {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kIteration = 1'000'000'000;  // microseconds times iterations in 1,000 s

int64_t gained(uint64_t now, uint64_t before) {
  return static_cast<int64_t>(now >= before ? now - before : now);  // it began anew
}

// Takes whole milliseconds out of a sum and leaves the rest for the next sample.
uint64_t take_ms(int64_t& ns) {
  if (ns < kMs) return 0;
  const int64_t ms = ns / kMs;
  ns -= ms * kMs;
  return static_cast<uint64_t>(ms);
}

FreezeReason reason_of(ProcessState state) {
  return state == ProcessState::kFrozenCap    ? FreezeReason::kCap
         : state == ProcessState::kFrozenTurn ? FreezeReason::kTurn
         : state == ProcessState::kFrozenUser ? FreezeReason::kUser
                                              : FreezeReason::kNone;
}

}  // namespace

void UsageMeter::look(const PlaneSnapshot& snapshot, Time monotonic, int64_t wall_ms) {
  const int64_t passed_ns = has_looked_ ? std::max<int64_t>((monotonic - last_).count(), 0) : 0;
  last_ = monotonic;
  watched_ns_ += passed_ns;
  for (const GpuRecord& gpu : snapshot.gpus)
    gpus_[gpu.index] = {.uuid = gpu.uuid, .name = gpu.name};
  of_processes_.clear();
  classes_.clear();
  for (const auto& [slot, tenant] : snapshot.tenants) classes_[tenant.name] = tenant.priority;
  for (auto& [key, freeze] : frozen_) freeze.is_seen = false;
  look_at_processes(snapshot, passed_ns, monotonic, wall_ms);
  look_at_tenants(snapshot, passed_ns);
  const auto is_old = [&](const auto& entry) { return monotonic - entry.second.seen > kUnseen; };
  std::erase_if(processes_, is_old);
  std::erase_if(tenants_, is_old);
  end_freezes();
  has_looked_ = true;
}

// That holds for the tenant: none above that of a tenant above it.
uint32_t UsageMeter::class_of(std::string_view tenant) const {
  Priority lowest = Priority::kHigh;
  for (; !tenant.empty(); tenant = name_above(tenant))
    if (const auto own = classes_.find(tenant); own != classes_.end())
      lowest = std::min(lowest, own->second);
  return static_cast<uint32_t>(lowest);
}

void UsageMeter::look_at_processes(const PlaneSnapshot& snapshot, int64_t passed_ns, Time monotonic,
                                   int64_t wall_ms) {
  for (const auto& [slot, process] : snapshot.processes) {
    const auto tenant = std::ranges::lower_bound(snapshot.tenants, process.tenant, {},
                                                 &Numbered<TenantRecord>::slot);
    if (tenant == snapshot.tenants.end() || tenant->slot != process.tenant) continue;
    const ProcessOnGpu key{process.pid, process.start_ticks, process.gpu};
    const auto known = processes_.try_emplace(key).first;
    const Counters before = std::exchange(
        known->second,
        {.used_ns = process.gpu_time_ns, .throttled_ns = process.throttled_ns, .seen = monotonic});
    const int64_t used = has_looked_ ? gained(process.gpu_time_ns, before.used_ns) : 0;
    const int64_t throttled = has_looked_ ? gained(process.throttled_ns, before.throttled_ns) : 0;
    const int64_t uid = process.uid == kUnknown32 ? kNoUser : int64_t{process.uid};
    const std::string name = tenant->record.name;
    UsageJob job{.name = process.run != 0 ? fmt::format("run-{}", process.run)
                                          : fmt::format("pid-{}", process.pid),
                 .command = process.command,
                 .tenant = name,
                 .uid = uid};

    Sums& own = sums_[{.tenant = name, .uid = uid, .gpu = process.gpu, .priority = class_of(name)}];
    Sums& of_job = jobs_[job];
    const bool waits =
        process.state == ProcessState::kWaiting || process.state == ProcessState::kFrozenTurn;
    for (Sums* sums : {&own, &of_job}) {
      sums->used += used;
      sums->throttled += throttled;
      if (waits) sums->waiting += passed_ns;
      if (process.state == ProcessState::kFrozenUser) sums->stopped += passed_ns;
    }
    if (process.target_permille != kUnknown32)
      own.entitled += passed_ns / 1000 * process.target_permille;
    of_processes_[{name, process.gpu}] += used;

    if (const FreezeReason reason = reason_of(process.state); reason != FreezeReason::kNone) {
      const int64_t lasted =
          (monotonic.time_since_epoch().count() - static_cast<int64_t>(process.state_since_ns)) /
          kMs;
      if (process.state_since_ns != 0 && lasted >= 0)
        frozen_[key] = {.freeze = {.start_ms = wall_ms - lasted,
                                   .duration_ms = static_cast<uint64_t>(lasted),
                                   .job = std::move(job),
                                   .pid = process.pid,
                                   .gpu = process.gpu,
                                   .reason = freeze_reason_name(reason)},
                        .is_seen = true};
    }
  }
}

void UsageMeter::look_at_tenants(const PlaneSnapshot& snapshot, int64_t passed_ns) {
  for (const auto& [slot, tenant] : snapshot.tenants) {
    const std::string name = tenant.name;
    // Also of a GPU that is away: what the tenant has had there goes on when it is back.
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
      const TenantGpuUse& use = tenant.gpu[gpu];
      const auto seen = of_processes_.find({name, gpu});
      if (use.gpu_time_ns == 0 && seen == of_processes_.end()) continue;
      Counters& known = tenants_[{name, gpu}];
      const uint64_t before =
          std::exchange(known, {.used_ns = use.gpu_time_ns, .seen = last_}).used_ns;
      const UsageSeries series{
          .tenant = name, .uid = kNoUser, .gpu = gpu, .priority = class_of(name)};
      if (has_looked_)
        sums_[series].used +=
            gained(use.gpu_time_ns, before) - (seen == of_processes_.end() ? 0 : seen->second);
      if (use.latency_us == kUnknown32 || use.iterations_per_ks == kUnknown32) continue;
      UsageAmounts& latency = latencies_[series];
      uint64_t& begun = begun_[series];
      begun += static_cast<uint64_t>(passed_ns / 1000) * use.iterations_per_ks;
      const uint64_t count = begun / kIteration;
      begun %= kIteration;
      latency.iterations += count;
      latency.iterations_us += count * use.latency_us;
      if (use.p99_us != kUnknown32) latency.p99_us = std::max<uint64_t>(latency.p99_us, use.p99_us);
      if (use.slo_us != kUnknown32) latency.target_us = use.slo_us;
    }
  }
}

void UsageMeter::end_freezes() {
  for (auto& [key, freeze] : frozen_)
    if (!freeze.is_seen && freeze.freeze.duration_ms >= kLeastFreezeMs)
      freezes_.push_back(std::move(freeze.freeze));
  std::erase_if(frozen_, [](const auto& entry) { return !entry.second.is_seen; });
}

UsageWrite UsageMeter::take() {
  UsageWrite out;
  out.sample.watched_ms = take_ms(watched_ns_);
  for (auto& [series, sums] : sums_) {
    UsageAmounts amounts{.used_ms = take_ms(sums.used),
                         .entitled_ms = take_ms(sums.entitled),
                         .waiting_ms = take_ms(sums.waiting),
                         .throttled_ms = take_ms(sums.throttled),
                         .stopped_ms = take_ms(sums.stopped)};
    if (amounts != UsageAmounts{}) out.sample.amounts[series] = amounts;
  }
  std::erase_if(begun_, [&](const auto& entry) { return !latencies_.contains(entry.first); });
  for (const auto& [series, latency] : std::exchange(latencies_, {}))
    out.sample.amounts[series] += latency;
  for (auto& [job, sums] : jobs_) {
    const UsageJobAmounts amounts{.used_ms = take_ms(sums.used),
                                  .waiting_ms = take_ms(sums.waiting),
                                  .throttled_ms = take_ms(sums.throttled)};
    if (amounts != UsageJobAmounts{}) out.jobs[job] = amounts;
  }
  // What is left below a millisecond goes with who is there no more.
  std::erase_if(jobs_, [&](const auto& entry) { return !out.jobs.contains(entry.first); });
  std::erase_if(sums_, [&](const auto& entry) {
    return entry.second.used == 0 && !out.sample.amounts.contains(entry.first);
  });
  std::ranges::sort(freezes_, std::ranges::greater(), &UsageFreeze::duration_ms);
  freezes_.resize(std::min(freezes_.size(), kMostFreezes));
  out.freezes = std::exchange(freezes_, {});
  out.gpus = gpus_;
  return out;
}

}  // namespace gpushare
