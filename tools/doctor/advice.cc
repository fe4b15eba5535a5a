// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>

#include "shmctl/program/nearest.h"
#include "tools/agent/status_source.h"
#include "tools/doctor/limits.h"

namespace gpushare {
namespace {

std::optional<Status> live_status(const Endpoints& endpoints) {
  auto status = StatusSource(endpoints).read_plane();
  if (!status || !status->health.is_live()) return std::nullopt;
  return std::move(*status);
}

std::string_view name_of(const TenantRecord& tenant) {
  const std::string_view field(tenant.name, sizeof(tenant.name));
  return field.substr(0, field.find('\0'));
}

}  // namespace

void warn_of_no_effect(const Endpoints& endpoints, const SettingTexts& settings, bool has_shim) {
  if (settings.empty()) return;
  auto status = live_status(endpoints);
  if (!status) return;
  DoctorInput input;
  input.status = std::move(*status);
  for (const std::string& line : without_effect(settings, check_limits(input), has_shim))
    fmt::print(stderr, "gpushare: warning: {}\n", line);
}

std::string advice_on_tenant(const Endpoints& endpoints, const std::string& tenant, bool may_make) {
  const auto status = live_status(endpoints);
  if (!status) return "";
  std::vector<std::string_view> names;
  for (const auto& [slot, record] : status->snapshot.tenants) names.push_back(name_of(record));
  if (std::ranges::find(names, tenant) != names.end()) return "";
  if (const std::string_view near = nearest(tenant, names); !near.empty())
    return fmt::format("did you mean '{}'?", near);
  if (!may_make) return "";
  return fmt::format("'gpushare set --create {} weight=100' makes it", tenant);
}

uint32_t processes_on_gpus(const Endpoints& endpoints, const std::string& tenant) {
  const auto status = live_status(endpoints);
  if (!status) return 0;
  for (const auto& [slot, record] : status->snapshot.tenants)
    if (name_of(record) == tenant) return record.process_count;
  return 0;
}

}  // namespace gpushare
