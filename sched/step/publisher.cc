// SPDX-License-Identifier: Apache-2.0
#include "sched/step/publisher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "sched/registry/ended.h"
#include "sched/step/turn_taking.h"
#include "sched/step/views.h"
#include "shmctl/plane/fields.h"
#include "shmctl/plane/snapshot.h"
#include "shmctl/settings/record_settings.h"

namespace gpushare {
namespace {

uint32_t permille(double share) {
  if (share < 0) return kUnknown32;
  return static_cast<uint32_t>(std::lround(std::min(share, 1.0) * 1000));
}

uint32_t per_second(double rate) {
  return rate < 0 ? kUnknown32 : static_cast<uint32_t>(std::lround(rate));
}

uint32_t micros(double seconds) {
  if (seconds < 0) return kUnknown32;
  return static_cast<uint32_t>(std::llround(std::min(seconds * 1e6, double{kUnknown32 - 1})));
}

// Why a tenant has the partition that it has.
void put_slo(TenantGpuUse& use, const SloStatus& slo, const SmGeometry& geometry) {
  use.slo_state = slo.state;
  use.slo_us = static_cast<uint32_t>(std::chrono::duration_cast<Micros>(slo.slo).count());
  use.latency_us = micros(slo.latency);
  use.p99_us = micros(slo.p99);
  if (slo.throughput >= 0)
    use.iterations_per_ks =
        static_cast<uint32_t>(std::llround(std::min(slo.throughput * 1e3, 4e9)));
  use.iteration_source = static_cast<uint32_t>(slo.source);
  if (slo.source != ShimSource::kNone) use.confidence_permille = slo.confidence;
  if (slo.knee > 0) use.sms_knee = geometry.sms_of_count(slo.knee);
  use.phase = static_cast<uint32_t>(slo.phase);
  if (slo.needs > 0) use.sms_needed = geometry.sms_of_count(slo.needs);
}

GpuSharing sharing_of(const GpuConfig& gpu) {
  if (!gpu.is_spatial) return GpuSharing::kTime;
  return gpu.policy.entry->needs.iterations ? GpuSharing::kSlo : GpuSharing::kSpatial;
}

// The first GPU that does not answer, since when, and how many others do not; nullopt: all do.
std::optional<std::string> problem_of(const State& state, Time now) {
  const auto& problems = state.gpu_problems;
  const auto has_one = [](const std::string& problem) { return !problem.empty(); };
  const auto first = std::ranges::find_if(problems, has_one);
  if (first == problems.end()) return std::nullopt;
  const Time since = state.gpu_problem_since[static_cast<std::size_t>(first - problems.begin())];
  const auto others = std::count_if(std::next(first), problems.end(), has_one);
  return fmt::format("{}{}, for {} s", *first,
                     others > 0 ? fmt::format(" (and {} more)", others) : "",
                     std::chrono::floor<std::chrono::seconds>(now - since).count());
}

// Who ends it is whoever ends these, too.
std::string note_of_heirs(const Process& process) {
  if (process.heirs.empty())
    return "has ended; another process holds its files of the driver, so its work goes on";
  return fmt::format("has ended; its work goes on until {} end{}", fmt::join(process.heirs, ", "),
                     process.heirs.size() == 1 ? "s" : "");
}

// A sum of shares some of which may be unknown: it is known as soon as one of them is.
void add_share(uint32_t& sum, double share) {
  if (share < 0) return;
  sum = std::min(1000u, (sum == kUnknown32 ? 0 : sum) + permille(share));
}

}  // namespace

AgentRecord record_of(const AgentIdentity& agent, Time now) {
  AgentRecord record;
  record.agent_pid = agent.agent_pid;
  record.supervisor_pid = agent.supervisor_pid;
  record.started_ns = stored_ns(agent.started);
  record.published_ns = stored_ns(now);
  record.restarts = agent.restarts;
  record.is_simulated = agent.is_simulated;
  record.are_tenants_in_sysfs = agent.are_tenants_in_sysfs;
  return record;
}

std::map<uint32_t, TenantUse> published_use(const Region& region, const Tenants& tenants) {
  std::map<uint32_t, TenantUse> uses;
  for (const uint32_t slot : tenants.slots()) {
    if (!is_written(region.tenants[slot].record)) continue;
    const auto record = read_record(region.tenants[slot].record);
    if (!record) continue;
    if (tenants.at(slot)->name != text_in(record->name)) continue;
    TenantUse use{.throttled = Nanos(record->throttled_ns),
                  .freezes = record->freezes,
                  .frozen_turn = Nanos(record->frozen_turn_ns),
                  .frozen_user = Nanos(record->frozen_user_ns),
                  .iterations = {.sum_us = record->iteration_us},
                  .turns = record->turns,
                  .held = Nanos(record->held_ns)};
    std::ranges::copy(record->iteration_counts, use.iterations.counts.begin());
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu)
      use.used[gpu] = Nanos(record->gpu[gpu].gpu_time_ns);
    uses.emplace(slot, use);
  }
  return uses;
}

Publisher::Publisher(const State& state, const Surroundings& outside, const AgentIdentity& agent,
                     const Config& config)
    : state_(state),
      outside_(outside),
      region_(outside.region),
      agent_(agent),
      config_(config),
      tenants_(kMaxTenants),
      had_tenant_(kMaxTenants),
      had_member_(kMaxTenants) {
  // What an agent before us left.
  for (uint32_t slot = 0; slot < kMaxTenants; ++slot)
    had_tenant_[slot] = is_written(region_.tenants[slot].record);
}

Time Publisher::publish(Time now, bool is_changed) {
  has_change_ |= is_changed;
  if (now < (has_change_ ? next_change_ : next_)) {
    publish_agent(now);
    return has_change_ ? next_change_ : Time::max();
  }
  has_change_ = false;
  next_ = now + kInterval;
  next_change_ = now + kChangeInterval;
  const Publication publication(region_);
  publish_agent(now);
  publish_gpus();
  publish_tenants();
  publish_processes(now);
  return Time::max();
}

void Publisher::publish_agent(Time now) {
  AgentRecord record = record_of(agent_, now);
  record.ticks = state_.ticks;
  record.events = state_.events;
  record.events_dropped = outside_.observer == nullptr ? 0 : outside_.observer->dropped();
  record.false_claims = outside_.observer == nullptr
                            ? 0
                            : static_cast<uint32_t>(outside_.observer->false_claims().count);
  record.interferences = static_cast<uint32_t>(state_.interference.count());
  const std::span<const GpuInfo> gpus = outside_.gpu.gpus();
  record.gpu_count = static_cast<uint32_t>(std::min<std::size_t>(gpus.size(), kMaxGpus));
  if (outside_.mps != nullptr) {
    const MpsStatus mps = outside_.mps->status();
    record.mps_pid = static_cast<uint32_t>(mps.pid);
    record.mps_state = static_cast<uint32_t>(mps.state);
    record.mps_clients = mps.clients;
    record.mps_faults = mps.faults;
  }
  record.tick_us = static_cast<uint32_t>(state_.tick.count());
  const GpuSupport& support = outside_.gpu.support();
  record.can_freeze = support.can_freeze;
  record.can_set_slice = support.can_set_slice;
  record.has_switch_log = support.has_switch_log;
  put_text(record.driver_version, support.driver_version);
  put_text(record.policy, config_.policy_names(gpus.size()));
  put_text(record.observe_only_reason, problem_of(state_, now).value_or(support.reason));
  write_record(region_.agent, record);
}

void Publisher::publish_gpus() {
  for (const GpuInfo& info : outside_.gpu.gpus()) {
    if (info.index >= kMaxGpus) continue;
    const Accounting& accounting = state_.accounting[info.index];
    GpuRecord record;
    record.index = info.index;
    record.instance = info.instance;
    record.sharing = sharing_of(config_.gpu(info.index));
    if (info.sm_count > 0) record.sm_count = info.sm_count;
    if (info.memory_bytes > 0) record.memory_bytes = info.memory_bytes;
    record.busy_permille = permille(accounting.busy());
    record.switches_per_s = per_second(accounting.switches_per_s());
    record.memory_used_bytes = 0;
    std::vector<uint32_t> tenants;
    for (const auto* entry : state_.members_on[info.index]) {
      const auto& [key, member] = *entry;
      ++record.process_count;
      tenants.push_back(member.tenant);
      record.memory_used_bytes += member.holder->memory_bytes;
    }
    std::ranges::sort(tenants);
    record.tenant_count =
        static_cast<uint32_t>(std::ranges::unique(tenants).begin() - tenants.begin());
    record.log_records = accounting.records();
    record.log_lost = accounting.lost();
    put_text(record.uuid, info.uuid);
    put_text(record.name, info.name);
    put_text(record.pci, info.pci);
    put_text(record.policy, config_.gpu(info.index).policy.entry->name);
    if (state_.turns != nullptr) state_.turns->describe(info.index, record);
    write_record(region_.gpus[info.index], record);
  }
}

// What the settings say of the tenants, made anew when they have changed. Returns true then.
bool Publisher::describe_tenants() {
  if (std::exchange(described_, state_.tenants.generation() + 1) == state_.tenants.generation() + 1)
    return false;
  std::ranges::fill(tenants_, TenantRecord{});
  for (const uint32_t slot : state_.tenants.slots()) {
    const Tenant& tenant = *state_.tenants.at(slot);
    put_text(tenants_[slot].name, tenant.name);
    put_settings(tenants_[slot], tenant.settings);
    tenants_[slot].frozen_by_user = tenant.is_frozen;
  }
  return true;
}

// Of a thousand tenants, those that have nothing on a GPU, and had nothing, are as they were.
void Publisher::publish_tenants() {
  const bool are_all_new = describe_tenants() || outside_.shims != nullptr;
  std::vector<bool> is_concerned(kMaxTenants, are_all_new);
  for (const auto& [slot, use] : state_.tenant_use) is_concerned[slot] = true;
  for (const auto& [key, member] : state_.members) is_concerned[member.tenant] = true;
  std::vector<uint32_t> slots;
  for (uint32_t slot = 0; slot < kMaxTenants; ++slot)
    if (is_concerned[slot] || had_member_[slot]) slots.push_back(slot);
  std::vector<uint32_t> place_of(kMaxTenants);
  records_.clear();
  for (const uint32_t slot : slots) {
    place_of[slot] = static_cast<uint32_t>(records_.size());
    TenantRecord& record = records_.emplace_back(tenants_[slot]);
    if (state_.tenants.at(slot) == nullptr) continue;
    publish_partitions(slot, record);
    const auto use = state_.tenant_use.find(slot);
    if (use == state_.tenant_use.end()) continue;
    record.throttled_ns = static_cast<uint64_t>(use->second.throttled.count());
    record.freezes = use->second.freezes;
    record.frozen_turn_ns = static_cast<uint64_t>(use->second.frozen_turn.count());
    record.frozen_user_ns = static_cast<uint64_t>(use->second.frozen_user.count());
    record.turns = use->second.turns;
    record.held_ns = static_cast<uint64_t>(use->second.held.count());
    record.iteration_us = use->second.iterations.sum_us;
    std::ranges::copy(use->second.iterations.counts, record.iteration_counts);
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu)
      record.gpu[gpu].gpu_time_ns = static_cast<uint64_t>(use->second.used[gpu].count());
  }
  had_member_.assign(kMaxTenants, false);
  ProcessId counted;  // a process on two GPUs is one, and its members are neighbours
  for (const auto& [key, member] : state_.members) {
    TenantRecord& record = records_[place_of[member.tenant]];
    had_member_[member.tenant] = true;
    const auto& [process, gpu] = key;
    if (std::exchange(counted, process) != process) ++record.process_count;
    record.memory_bytes += member.holder->memory_bytes;
    if (gpu >= kMaxGpus) continue;
    add_share(record.gpu[gpu].share_permille, member.share);
    add_share(record.gpu[gpu].target_permille, member.target);
  }
  for (const uint32_t slot : slots) {
    const bool is_there = state_.tenants.at(slot) != nullptr;
    if (is_there || had_tenant_[slot])
      write_record(region_.tenants[slot].record, records_[place_of[slot]]);
    had_tenant_[slot] = is_there;
  }
}

void Publisher::publish_partitions(uint32_t tenant, TenantRecord& record) const {
  if (outside_.shims == nullptr) return;
  for (uint32_t gpu = 0; gpu < std::min<std::size_t>(state_.statuses.size(), kMaxGpus); ++gpu) {
    const TenantPartition partition = outside_.shims->partition(tenant, gpu);
    if (!config_.gpu(gpu).is_spatial || partition.entitled == 0) continue;
    TenantGpuUse& use = record.gpu[gpu];
    use.sms_entitled = partition.entitled;
    use.sms_in_use = partition.in_use;
    use.sms_sharers = partition.sharers;
    use.sms_set = partition.partition;
    use.sms_follows = static_cast<uint32_t>(partition.follows);
    const std::vector<SloStatus>& statuses = state_.statuses[gpu];
    const auto status = std::ranges::find(statuses, tenant, &SloStatus::tenant);
    if (status != statuses.end()) put_slo(use, *status, partition.geometry);
  }
}

// What is wrong with this process goes before what is so with every client of MPS.
std::string Publisher::note_of(const MemberKey& key, const Member& member,
                               const Enforcer::State& enforced, Time now) const {
  const Process* const process = state_.registry.find(key.first);
  if (process != nullptr && EndedProcesses::remains(*process, now)) return note_of_heirs(*process);
  if (enforced.is_frozen && !member.reason.empty()) return member.reason;
  const bool is_refused = !enforced.can_control || !enforced.can_set_slice;
  if (is_refused && !enforced.is_frozen) return enforced.note;
  if (std::string note = state_.interference.note_of(key.first); !note.empty()) return note;
  std::string note = outside_.shims == nullptr ? "" : outside_.shims->note(key.first);
  return note.empty() && !enforced.is_frozen ? enforced.note : note;
}

void Publisher::publish_processes(Time now) {
  for (const auto& [key, member] : state_.members) {
    const auto& [id, gpu] = key;
    const Process& process = *state_.registry.find(id.pid);
    const Enforcer::State enforced = state_.enforcer.state(*member.holder);
    const Accounting::Use use = state_.accounting[gpu].use(id.pid, now);
    ProcessRecord record;
    record.pid = id.pid;
    record.ns_pid = process.ns_pid;
    record.start_ticks = id.start_ticks;
    // No event told of those that were there before the agent; of one that had ended when it was
    // to be looked at nothing is known.
    record.uid = process.uid.value_or(member.command.empty() ? kUnknown32 : member.user);
    record.gpu = gpu;
    record.tenant = member.tenant;
    record.run = member.run;
    record.state = member.state;
    record.cgroup_id = process.cgroup_id;
    if (enforced.slice) record.slice_us = static_cast<uint32_t>(enforced.slice->count());
    record.target_permille = permille(member.target);
    record.share_permille = permille(use.share);
    record.is_late_attach = process.is_late_attach;
    if (gpu < kMaxGpus) {
      const std::optional<CapView> cap = cap_view(state_.tenants, member.tenant, gpu, region_);
      record.has_bucket = cap.has_value();
      record.tokens_ns = cap ? cap->tokens.count() : 0;
    }
    record.switches_per_s = per_second(use.switches_per_s);
    record.gpu_time_ns = static_cast<uint64_t>(use.total.count());
    record.memory_bytes = member.holder->memory_bytes;
    record.freezes = enforced.freezes;
    record.throttled_ns = static_cast<uint64_t>(member.throttled.count());
    record.state_since_ns = stored_ns(member.state_since);
    if (!outside_.processes.hides_others()) {
      put_text(record.command, command_of(process, member));
      put_text(record.command_line, member.command_line);
    }
    put_text(record.note, note_of(key, member, enforced, now));
    if (state_.turns != nullptr) state_.turns->describe(id, gpu, record);
    std::ranges::copy(use.history_permille, record.history_permille);
    write_record(region_.processes[member.slot].record, record);
  }
}

}  // namespace gpushare
