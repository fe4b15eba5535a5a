// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "shmctl/settings/tenant_settings.h"
#include "tools/base/format.h"
#include "tools/doctor/machine_files.h"
#include "tools/doctor/module_checks.h"
#include "tools/view/slo_view.h"

namespace gpushare {
namespace {

// Says how closely targets bind.
std::string target_closeness(const PlaneSnapshot& snapshot) {
  const auto sharing = std::ranges::count_if(snapshot.tenants, [](const auto& tenant) {
    return std::ranges::any_of(tenant.record.gpu, does_share_sms);
  });
  std::string where = "'gpushare status' says what each tenant needs, and why it has what it has";
  if (sharing == 0) return where;
  return fmt::format(
      "there are not enough SMs for a part of its own for each: {} tenants share theirs; {}",
      sharing, where);
}

std::vector<std::string> tenants_where(const DoctorInput& input,
                                       bool (*uses)(const TenantRecord&)) {
  std::vector<std::string> names;
  if (!input.status) return names;
  for (const auto& [slot, tenant] : input.status->snapshot.tenants)
    if (uses(tenant)) names.push_back(tenant_text(tenant));
  return names;
}

// Settings that the program's own library carries out.
bool needs_shim(std::string_view key) {
  return key.starts_with("sm_") || key == "slo_us" || key == "phase";
}

// Returns whether the setting asks for more than its default does.
bool asks_for_something(const std::string& key, const std::string& value) {
  TenantSettings settings;
  return apply_setting(settings, key, value) && settings != TenantSettings{};
}

}  // namespace

bool has_spatial_gpu(const DoctorInput& input) {
  return input.status && input.status->health.is_live() &&
         std::ranges::any_of(input.status->snapshot.gpus,
                             [](const GpuRecord& gpu) { return gpu.sharing != GpuSharing::kTime; });
}

std::vector<LimitFinding> check_limits(const DoctorInput& input) {
  const bool is_live = input.status && input.status->health.is_live();
  const AgentRecord agent = is_live ? input.status->snapshot.agent : AgentRecord{};
  const bool can_slice = is_live && agent.can_set_slice != 0;
  const bool can_freeze = is_live && agent.can_freeze != 0;
  const bool is_spatial = has_spatial_gpu(input);
  const bool has_log = is_live && agent.has_switch_log != 0;
  const std::string module = module_state(MachineFiles(input.root));
  const bool has_targets =
      is_spatial && !tenants_where(input, [](const TenantRecord& t) {
                       return std::ranges::any_of(t.gpu, [](const TenantGpuUse& use) {
                         return use.slo_state != SloState::kNone;
                       });
                     }).empty();
  const bool has_phases =
      is_live && std::ranges::any_of(input.status->snapshot.gpus, [](const GpuRecord& gpu) {
        return std::string_view(gpu.policy, ::strnlen(gpu.policy, sizeof gpu.policy)) == "tpot";
      });
  const bool is_hooked = module.starts_with("hooked");
  std::string reason = is_live ? printable(agent.observe_only_reason) : "no agent runs";
  if (reason.empty()) reason = "the driver does not allow it";

  const std::string closeness = has_log ? "measured by the hardware's switch log"
                                        : "without the switch log, use is estimated";
  const std::string where_shared =
      is_spatial ? "; among programs that run on the same SMs with gate = \"credit\" only" : "";
  const auto of_partition = [&](const char* key, const char* how,
                                bool (*uses)(const TenantRecord&)) {
    return LimitFinding{
        key, is_spatial, "SM partitions, in programs started with 'gpushare run --shim'",
        is_spatial ? how : "no GPU is shared so: [gpu.0] sharing = \"spatial\" in gpushare.toml",
        tenants_where(input, uses)};
  };
  return {
      {"weight", can_slice, "time slices of the GPU",
       can_slice ? "while at least two programs have work; " + closeness + where_shared : reason,
       tenants_where(input, [](const TenantRecord& t) { return t.weight != 100; })},
      {"max", can_freeze, "freezing channels when the tokens are used up",
       can_freeze ? closeness : reason,
       tenants_where(input, [](const TenantRecord& t) { return t.quota_us != kUnknown64; })},
      {"priority", can_slice && can_freeze, "time slices, and turns among idle-class programs",
       can_slice && can_freeze
           ? "an idle-class program gives way within about 200 us" + where_shared
           : reason,
       tenants_where(input, [](const TenantRecord& t) { return t.priority != Priority::kNormal; })},
      {"memory_max", is_hooked, "the kernel module, when a program allocates",
       is_hooked        ? "an allocation above it is answered with out of memory"
       : module.empty() ? "gpushare.ko is not loaded"
                        : "gpushare.ko is " + module,
       tenants_where(input,
                     [](const TenantRecord& t) { return t.memory_max_bytes != kUnknown64; })},
      of_partition("sm_percent", "of whole groups of 8 SMs; idle ones are lent",
                   [](const TenantRecord& t) { return t.sm_percent != kUnknown32; }),
      of_partition("sm_min", "rounded up to whole groups of 8 SMs",
                   [](const TenantRecord& t) { return t.sm_min != 0; }),
      of_partition("sm_shown", "in programs that have started since it was set",
                   [](const TenantRecord& t) { return t.sm_shown != 0; }),
      {"slo_us", has_targets, "SM partitions, by the policy 'slo' or 'tpot'",
       has_targets ? target_closeness(input.status->snapshot)
                   : "no program with the shim is on a GPU with [gpu.0] sharing = \"spatial\", "
                     "policy = \"slo\" or \"tpot\"",
       tenants_where(input, [](const TenantRecord& t) { return t.slo_us != 0; })},
      {"phase", has_phases, "SM partitions, by the policy 'tpot'",
       has_phases ? "tokens go before prompts; 'gpushare status' shows each tenant's phase"
                  : "no GPU has the policy: [gpu.0] sharing = \"spatial\", policy = \"tpot\"",
       tenants_where(input, [](const TenantRecord& t) { return t.phase != TenantPhase::kAuto; })},
  };
}

std::vector<std::string> without_effect(
    const std::vector<std::pair<std::string, std::string>>& settings,
    const std::vector<LimitFinding>& limits, bool has_shim, std::string_view tenant) {
  std::vector<std::string> lines;
  const std::string_view top = tenant.substr(0, tenant.find('/'));
  for (const auto& [key, value] : settings) {
    const auto limit = std::ranges::find(limits, key, &LimitFinding::limit);
    if (limit == limits.end() || !asks_for_something(key, value)) continue;
    if (!limit->is_binding)
      lines.push_back(fmt::format("{}={} does not bind: {}", key, value, limit->why));
    else if (needs_shim(key) && top != tenant)
      lines.push_back(fmt::format("{}={} does not bind: all below '{}' are in its part of the SMs",
                                  key, value, top));
    else if (needs_shim(key) && !has_shim)
      lines.push_back(
          fmt::format("{}={} does not bind: the program is started without the shim "
                      "(gpushare run --shim)",
                      key, value));
  }
  return lines;
}

}  // namespace gpushare
