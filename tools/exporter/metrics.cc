// SPDX-License-Identifier: Apache-2.0
#include "tools/exporter/metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "shmctl/base/version.h"
#include "shmctl/plane/fields.h"
#include "shmctl/plane/status_json.h"
#include "tools/exporter/exposition.h"

namespace gpushare {
namespace {

using Type = Exposition::Type;

constexpr uint32_t kNearEnough = 10;  // permille of the GPU
// More bytes than the text usually has of each, so that it need not be moved as it grows.
constexpr size_t kOfAgent = 1 << 16, kOfTenant = 4096, kOfTenantOnGpu = 1024;

double ratio(uint32_t permille) { return permille / 1000.0; }
double seconds_of_micros(uint64_t us) { return static_cast<double>(us) / 1e6; }
double seconds_of_nanos(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

// What all samples share is put into text once.
struct TenantOnGpu {
  const TenantRecord* tenant = nullptr;
  const TenantGpuUse* use = nullptr;
  uint32_t slot = 0;
  uint32_t gpu = 0;
  std::string labels;
};

class Writer {
 public:
  Writer(const Status& status, const std::vector<Workload>& workloads, Nanos epoch_less_monotonic)
      : snapshot_(status.snapshot),
        workloads_(workloads),
        epoch_(epoch_less_monotonic),
        out_(kOfAgent +
             snapshot_.tenants.size() * (kOfTenant + snapshot_.gpus.size() * kOfTenantOnGpu)) {
    for (const GpuRecord& gpu : snapshot_.gpus)
      gpu_labels_.push_back(label_text(
          {{"gpu", std::to_string(gpu.index)}, {"UUID", std::string(text_in(gpu.uuid))}}));
    for (const auto& [slot, tenant] : snapshot_.tenants)
      tenant_labels_.push_back(label_text({{"tenant", std::string(text_in(tenant.name))}}));
    for (const auto& [slot, process] : snapshot_.processes)
      processes_[{process.tenant, process.gpu}].push_back(&process);
    for (size_t t = 0; t < snapshot_.tenants.size(); ++t)
      for (size_t g = 0; g < snapshot_.gpus.size(); ++g) add_pair(t, g);
  }

  std::string write() {
    write_agent();
    write_gpus();
    write_turns();
    write_tenants();
    write_use();
    write_iterations();
    write_processes();
    write_workloads();
    return out_.take();
  }

  static void write_up(Exposition& out, bool is_live) {
    out.begin("gpushare_up", Type::kGauge, "Whether the agent runs and writes.");
    out.add("", uint64_t{is_live});
    out.begin("gpushare_exporter_info", Type::kGauge, "The version of this exporter.");
    out.add(label_text({{"version", kVersion}, {"commit", kCommit}}), uint64_t{1});
  }

 private:
  // A pair of which nothing was ever seen is left out: most tenants use few of the GPUs.
  void add_pair(size_t t, size_t g) {
    const uint32_t gpu = snapshot_.gpus[g].index;
    if (gpu >= kMaxGpus) return;
    const TenantRecord& tenant = snapshot_.tenants[t].record;
    const TenantGpuUse& use = tenant.gpu[gpu];
    const bool has_process = processes_.contains({snapshot_.tenants[t].slot, gpu});
    if (!has_process && use.gpu_time_ns == 0 && use.share_permille == kUnknown32 &&
        use.target_permille == kUnknown32 && use.sms_entitled == kUnknown32)
      return;
    pairs_.push_back(
        {&tenant, &use, snapshot_.tenants[t].slot, gpu, tenant_labels_[t] + "," + gpu_labels_[g]});
  }

  // For each GPU, tenant or pair of them a sample of what `value` returns, unless that is nothing.
  void of_gpus(std::string_view name, Type type, std::string_view help, const auto& value) {
    out_.begin(name, type, help);
    for (size_t g = 0; g < snapshot_.gpus.size(); ++g)
      if (const auto number = value(snapshot_.gpus[g])) out_.add(gpu_labels_[g], *number);
  }
  void of_tenants(std::string_view name, Type type, std::string_view help, const auto& value) {
    out_.begin(name, type, help);
    for (size_t t = 0; t < snapshot_.tenants.size(); ++t)
      if (const auto number = value(snapshot_.tenants[t].record))
        out_.add(tenant_labels_[t], *number);
  }
  void of_pairs(std::string_view name, Type type, std::string_view help, const auto& value) {
    out_.begin(name, type, help);
    for (const TenantOnGpu& pair : pairs_)
      if (const auto number = value(*pair.use)) out_.add(pair.labels, *number);
  }
  // Of each pair the sum of what is known of its processes.
  void of_processes(std::string_view name, std::string_view help, const auto& value) {
    out_.begin(name, Type::kGauge, help);
    for (const TenantOnGpu& pair : pairs_) {
      const auto found = processes_.find({pair.slot, pair.gpu});
      if (found == processes_.end()) continue;
      std::optional<uint64_t> sum;
      for (const ProcessRecord* process : found->second)
        if (const std::optional<uint64_t> number = value(*process)) sum = sum.value_or(0) + *number;
      if (sum) out_.add(pair.labels, *sum);
    }
  }
  // Of records whose numbers are always known.
  static auto known(auto member) {
    return [member](const auto& record) { return std::optional<uint64_t>(record.*member); };
  }
  static auto part(uint32_t GpuRecord::* member) {
    return [member](const GpuRecord& gpu) {
      return gpu.*member == kUnknown32 ? std::nullopt : std::optional(ratio(gpu.*member));
    };
  }
  static auto part(uint32_t TenantGpuUse::* member) {
    return [member](const TenantGpuUse& use) {
      return use.*member == kUnknown32 ? std::nullopt : std::optional(ratio(use.*member));
    };
  }
  static auto whole(auto member) {
    return [member](const auto& record) {
      return record.*member == kUnknown32 ? std::nullopt : std::optional<uint64_t>(record.*member);
    };
  }
  static auto bytes(auto member) {
    return [member](const auto& record) {
      return record.*member == kUnknown64 ? std::nullopt : std::optional<uint64_t>(record.*member);
    };
  }

  void one(std::string_view name, Type type, std::string_view help, uint64_t value) {
    out_.begin(name, type, help);
    out_.add("", value);
  }

  void write_agent();
  void write_gpus();
  void write_turns();
  void write_tenants();
  void write_use();
  void write_iterations();
  void write_processes();
  void write_workloads();

  const PlaneSnapshot& snapshot_;
  const std::vector<Workload>& workloads_;
  const Nanos epoch_;
  std::vector<std::string> gpu_labels_, tenant_labels_;
  std::vector<TenantOnGpu> pairs_;
  // By tenant and GPU.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<const ProcessRecord*>> processes_;
  Exposition out_;
};

void Writer::write_agent() {
  const AgentRecord& agent = snapshot_.agent;
  write_up(out_, true);
  out_.begin("gpushare_agent_info", Type::kGauge, "What the agent drives and by which policy.");
  out_.add(label_text({{"driver_version", std::string(text_in(agent.driver_version))},
                       {"policy", std::string(text_in(agent.policy))},
                       {"simulated", agent.is_simulated != 0 ? "true" : "false"}}),
           uint64_t{1});
  out_.begin("gpushare_agent_start_time_seconds", Type::kGauge,
             "When the agent started, since the epoch.");
  out_.add("", seconds_of_nanos(agent.started_ns + static_cast<uint64_t>(epoch_.count())));
  out_.begin("gpushare_agent_observe_only", Type::kGauge,
             "Whether the agent only observes, because the driver allows no more.");
  out_.add("", uint64_t{agent.observe_only_reason[0] != '\0'});
  one("gpushare_agent_restarts_total", Type::kCounter,
      "How often the supervisor has started the agent again.", agent.restarts);
  one("gpushare_agent_driver_events_total", Type::kCounter, "Driver events that were seen.",
      agent.events);
  one("gpushare_agent_driver_events_lost_total", Type::kCounter, "Driver events that were lost.",
      agent.events_dropped);
  one("gpushare_agent_interferences_total", Type::kCounter,
      "Freezes and slices of a process by another one, which were undone.", agent.interferences);
  one("gpushare_agent_false_claims_total", Type::kCounter,
      "Claims of the driver's objects by processes that do not have them.", agent.false_claims);
  one("gpushare_mps_clients", Type::kGauge, "Clients of the MPS servers that the agent runs.",
      agent.mps_clients);
  one("gpushare_mps_faults_total", Type::kCounter, "Faults that ended clients of MPS.",
      agent.mps_faults);
  one("gpushare_runs_waiting", Type::kGauge,
      "Runs that wait for a GPU on which their memory fits, the first 64.",
      snapshot_.waiting.size());
}

void Writer::write_gpus() {
  out_.begin("gpushare_gpu_info", Type::kGauge, "What a GPU is and how it is shared.");
  for (size_t g = 0; g < snapshot_.gpus.size(); ++g) {
    const GpuRecord& gpu = snapshot_.gpus[g];
    out_.add(gpu_labels_[g] + "," +
                 label_text({{"name", std::string(text_in(gpu.name))},
                             {"pci", std::string(text_in(gpu.pci))},
                             {"sharing", std::string(sharing_text(gpu.sharing))}}),
             uint64_t{1});
  }
  of_gpus("gpushare_gpu_busy_ratio", Type::kGauge, "Busy part of the last second.",
          part(&GpuRecord::busy_permille));
  of_gpus("gpushare_gpu_memory_bytes", Type::kGauge, "Memory of the GPU.",
          bytes(&GpuRecord::memory_bytes));
  of_gpus("gpushare_gpu_memory_used_bytes", Type::kGauge,
          "Memory that the processes hold which the agent knows.",
          bytes(&GpuRecord::memory_used_bytes));
  of_gpus("gpushare_gpu_switches_per_second", Type::kGauge,
          "Switches to a context, in the last second.", whole(&GpuRecord::switches_per_s));
  of_gpus("gpushare_gpu_switch_log_records_total", Type::kCounter,
          "Records of context switches that were read: two for each switch.",
          known(&GpuRecord::log_records));
  of_gpus("gpushare_gpu_switch_log_lost_total", Type::kCounter,
          "Records of context switches that were lost.", known(&GpuRecord::log_lost));
}

void Writer::write_turns() {
  // By GPU, each job once, although it may have many processes.
  std::map<uint32_t, std::map<uint64_t, TurnState>> jobs;
  for (const auto& [slot, process] : snapshot_.processes)
    if (process.job != 0 && process.turn != TurnState::kFree)
      jobs[process.gpu].emplace(process.job, process.turn);
  const auto takes_turns = [&](const GpuRecord& gpu) {
    return gpu.gaps + gpu.gaps_missed > 0 || jobs.contains(gpu.index);
  };
  const auto count = [&](uint64_t GpuRecord::* member) {
    return [&takes_turns, member](const GpuRecord& gpu) {
      return takes_turns(gpu) ? std::optional<uint64_t>(gpu.*member) : std::nullopt;
    };
  };
  const auto gap = [](uint32_t GpuRecord::* member) {
    return [member](const GpuRecord& gpu) {
      return gpu.*member == kUnknown32 ? std::nullopt
                                       : std::optional(seconds_of_micros(gpu.*member));
    };
  };
  of_gpus("gpushare_gpu_turn_gaps_total", Type::kCounter,
          "Hand-overs from one job to the next whose gap was seen.", count(&GpuRecord::gaps));
  of_gpus("gpushare_gpu_turn_gaps_missed_total", Type::kCounter,
          "Hand-overs from one job to the next whose gap could not be seen.",
          count(&GpuRecord::gaps_missed));
  out_.begin("gpushare_jobs", Type::kGauge, "Jobs that take turns, by where they are.");
  for (size_t g = 0; g < snapshot_.gpus.size(); ++g) {
    std::map<TurnState, uint64_t> counts;
    for (const auto& [job, state] : jobs[snapshot_.gpus[g].index]) ++counts[state];
    for (const auto& [state, number] : counts)
      out_.add(gpu_labels_[g] + ",state=\"" + std::string(turn_state_text(state)) + "\"", number);
  }
  of_gpus("gpushare_gpu_turn_gap_p50_seconds", Type::kGauge,
          "Median of the last 512 gaps between two jobs.", gap(&GpuRecord::gap_p50_us));
  of_gpus("gpushare_gpu_turn_gap_p99_seconds", Type::kGauge,
          "99th percentile of the last 512 gaps between two jobs.", gap(&GpuRecord::gap_p99_us));
}

void Writer::write_tenants() {
  of_tenants("gpushare_tenant_weight", Type::kGauge,
             "Share of GPU time relative to the other tenants.", known(&TenantRecord::weight));
  of_tenants("gpushare_tenant_cap_ratio", Type::kGauge,
             "Most of each GPU's time that the tenant may take; without a cap there is no sample.",
             [](const TenantRecord& tenant) -> std::optional<double> {
               if (tenant.quota_us == kUnknown64 || tenant.period_us == 0) return std::nullopt;
               return static_cast<double>(tenant.quota_us) / static_cast<double>(tenant.period_us);
             });
  of_tenants("gpushare_tenant_memory_bytes", Type::kGauge,
             "GPU memory that the tenant's processes hold.", bytes(&TenantRecord::memory_bytes));
  of_tenants("gpushare_tenant_memory_max_bytes", Type::kGauge,
             "Most GPU memory that the tenant may hold on each GPU; without a limit there is no "
             "sample.",
             bytes(&TenantRecord::memory_max_bytes));
  out_.begin("gpushare_tenant_throttled_seconds_total", Type::kCounter,
             "Time for which processes of the tenant were frozen, by the reason.");
  constexpr std::array<std::pair<uint64_t TenantRecord::*, std::string_view>, 3> kFrozen = {
      {{&TenantRecord::throttled_ns, "cap"},
       {&TenantRecord::frozen_turn_ns, "turn"},
       {&TenantRecord::frozen_user_ns, "user"}}};
  for (size_t t = 0; t < snapshot_.tenants.size(); ++t)
    for (const auto& [member, reason] : kFrozen)
      out_.add(tenant_labels_[t] + ",reason=\"" + std::string(reason) + "\"",
               seconds_of_nanos(snapshot_.tenants[t].record.*member));
  of_tenants("gpushare_tenant_freezes_total", Type::kCounter,
             "How often processes of the tenant were frozen.", known(&TenantRecord::freezes));
  of_tenants("gpushare_tenant_turns_total", Type::kCounter,
             "Turns that jobs of the tenant had, where the policy orders jobs.",
             known(&TenantRecord::turns));
  of_tenants(
      "gpushare_tenant_held_seconds_total", Type::kCounter,
      "Time for which a job of the tenant had work for a GPU and waited for its turn, where the "
      "policy orders jobs.",
      [](const TenantRecord& tenant) { return std::optional(seconds_of_nanos(tenant.held_ns)); });
  of_tenants("gpushare_tenant_frozen_by_user", Type::kGauge,
             "Whether the tenant is frozen by `gpushare freeze`.",
             known(&TenantRecord::frozen_by_user));
}

void Writer::write_use() {
  of_pairs(
      "gpushare_tenant_gpu_seconds_total", Type::kCounter,
      "GPU time that the tenant had: its contexts were on the GPU, busy or not.",
      [](const TenantGpuUse& use) { return std::optional(seconds_of_nanos(use.gpu_time_ns)); });
  of_pairs("gpushare_tenant_share_ratio", Type::kGauge,
           "Share of the GPU's time in the last second, measured.",
           part(&TenantGpuUse::share_permille));
  of_pairs("gpushare_tenant_target_share_ratio", Type::kGauge,
           "Share that the policy aims at for the programs that are active now.",
           part(&TenantGpuUse::target_permille));
  out_.begin("gpushare_tenant_shortfall_ratio", Type::kGauge,
             "How much of the GPU the share is below its target, and why.");
  for (const TenantOnGpu& pair : pairs_) {
    const TenantGpuUse& use = *pair.use;
    if (use.share_permille == kUnknown32 || use.target_permille == kUnknown32) continue;
    const auto found = processes_.find({pair.slot, pair.gpu});
    const std::string_view reason = shortfall_reason(
        use, found == processes_.end() ? std::vector<const ProcessRecord*>{} : found->second);
    const uint32_t missing =
        use.target_permille - std::min(use.share_permille, use.target_permille);
    out_.add(pair.labels + ",reason=\"" + std::string(reason) + "\"", ratio(missing));
  }
  of_pairs("gpushare_tenant_sms", Type::kGauge,
           "SMs of the tenant's partition now, with those that are lent to it.",
           whole(&TenantGpuUse::sms_in_use));
  of_pairs("gpushare_tenant_entitled_sms", Type::kGauge,
           "SMs that the tenant is entitled to on a GPU that is shared spatially.",
           whole(&TenantGpuUse::sms_entitled));
}

void Writer::write_iterations() {
  const auto time = [](uint32_t TenantGpuUse::* member) {
    return [member](const TenantGpuUse& use) {
      return use.*member == kUnknown32 || use.slo_state == SloState::kNone
                 ? std::nullopt
                 : std::optional(seconds_of_micros(use.*member));
    };
  };
  of_pairs("gpushare_tenant_iteration_mean_seconds", Type::kGauge,
           "Mean time of an iteration in the last round of about a second.",
           time(&TenantGpuUse::latency_us));
  of_pairs("gpushare_tenant_iteration_p99_seconds", Type::kGauge,
           "99th percentile of the recent iterations' times.", time(&TenantGpuUse::p99_us));
  of_pairs("gpushare_tenant_iteration_target_seconds", Type::kGauge,
           "Target time of an iteration; without a target there is no sample.",
           [&](const TenantGpuUse& use) {
             return use.slo_us == 0 ? std::nullopt : time(&TenantGpuUse::slo_us)(use);
           });
  out_.begin("gpushare_tenant_iteration_seconds", Type::kHistogram,
             "Times of the iterations of the tenant's programs with the shim.");
  static const auto kBounds = [] {
    std::array<double, kTimeBoundsUs.size()> bounds{};
    std::ranges::transform(kTimeBoundsUs, bounds.begin(), seconds_of_micros);
    return bounds;
  }();
  for (size_t t = 0; t < snapshot_.tenants.size(); ++t) {
    const TenantRecord& tenant = snapshot_.tenants[t].record;
    if (std::ranges::any_of(tenant.iteration_counts, [](uint64_t count) { return count != 0; }))
      out_.add_histogram(tenant_labels_[t], kBounds, tenant.iteration_counts,
                         seconds_of_micros(tenant.iteration_us));
  }
  out_.begin("gpushare_tenant_phase_info", Type::kGauge,
             "What the tenant does of a language model's work: prefill or decode.");
  for (const TenantOnGpu& pair : pairs_)
    if (pair.use->phase != 0)
      out_.add(pair.labels + ",phase=\"" + std::string(phase_text(pair.use->phase)) + "\"",
               uint64_t{1});
  of_pairs("gpushare_tenant_iterations_per_second", Type::kGauge,
           "Iterations in a second, in the last round.",
           [](const TenantGpuUse& use) -> std::optional<double> {
             if (use.iterations_per_ks == kUnknown32 || use.slo_state == SloState::kNone)
               return std::nullopt;
             return use.iterations_per_ks / 1000.0;
           });
}

void Writer::write_processes() {
  of_processes("gpushare_tenant_gpu_memory_bytes",
               "GPU memory that the tenant's processes hold on this GPU.",
               known(&ProcessRecord::memory_bytes));
  of_processes("gpushare_tenant_switches_per_second",
               "Switches to a context of the tenant, in the last second.",
               whole(&ProcessRecord::switches_per_s));
  out_.begin("gpushare_processes", Type::kGauge,
             "Processes of the tenant on the GPU, by what becomes of them.");
  for (const TenantOnGpu& pair : pairs_) {
    const auto found = processes_.find({pair.slot, pair.gpu});
    if (found == processes_.end()) continue;
    std::map<ProcessState, uint64_t> counts;
    for (const ProcessRecord* process : found->second) ++counts[process->state];
    for (const auto& [state, number] : counts)
      out_.add(pair.labels + ",state=\"" + std::string(state_text(state)) + "\"", number);
  }
}

void Writer::write_workloads() {
  std::set<std::pair<uint32_t, Workload>> seen;
  for (size_t i = 0; i < snapshot_.processes.size() && i < workloads_.size(); ++i)
    if (workloads_[i].is_known()) seen.emplace(snapshot_.processes[i].record.tenant, workloads_[i]);
  out_.begin("gpushare_tenant_workload_info", Type::kGauge,
             "The jobs, pods and containers whose processes are in the tenant.");
  for (size_t t = 0; t < snapshot_.tenants.size(); ++t) {
    const uint32_t slot = snapshot_.tenants[t].slot;
    for (auto at = seen.lower_bound({slot, {}}); at != seen.end() && at->first == slot; ++at)
      out_.add(tenant_labels_[t] + "," +
                   label_text({{"slurm_job", at->second.slurm_job},
                               {"pod_uid", at->second.pod_uid},
                               {"container_id", at->second.container_id},
                               {"namespace", at->second.name_space},
                               {"pod", at->second.pod},
                               {"container", at->second.container}}),
               uint64_t{1});
  }
}

}  // namespace

std::string_view shortfall_reason(const TenantGpuUse& use,
                                  const std::vector<const ProcessRecord*>& processes) {
  if (use.share_permille + kNearEnough >= use.target_permille) return "none";
  constexpr std::array<std::pair<ProcessState, std::string_view>, 5> kReasons = {
      {{ProcessState::kFrozenUser, "frozen"},
       {ProcessState::kFrozenCap, "cap"},
       {ProcessState::kFrozenTurn, "turn"},
       {ProcessState::kObserveOnly, "observe-only"},
       {ProcessState::kWaiting, "waiting"}}};
  for (const auto& [state, reason] : kReasons)
    if (std::ranges::find(processes, state, &ProcessRecord::state) != processes.end())
      return reason;
  return "idle";
}

std::string metrics_text(const Status& status, const std::vector<Workload>& workloads,
                         Nanos epoch_less_monotonic) {
  if (!status.health.is_live()) return metrics_without_status();
  return Writer(status, workloads, epoch_less_monotonic).write();
}

std::string metrics_without_status() {
  Exposition out;
  Writer::write_up(out, false);
  return out.take();
}

}  // namespace gpushare
