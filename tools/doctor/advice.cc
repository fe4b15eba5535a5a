// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>

#include "shmctl/plane/fields.h"
#include "shmctl/program/nearest.h"
#include "shmctl/settings/tenant_settings.h"
#include "tools/agent/status_source.h"
#include "tools/doctor/limits.h"

namespace gpushare {
namespace {

std::optional<Status> live_status(const Endpoints& endpoints) {
  StatusSource source(endpoints);
  auto status = endpoints.region.empty() ? source.read() : source.read_plane();
  if (!status || !status->health.is_live()) return std::nullopt;
  return std::move(*status);
}

// The settings that were to be set, or one that changes nothing.
std::string setting_words(const SettingTexts& settings) {
  if (settings.empty()) return " weight=100";
  std::string words;
  for (const auto& [key, value] : settings) {
    const char* quote = value.find(' ') == std::string::npos ? "" : "\"";
    words += fmt::format(" {0}{1}={2}{0}", quote, key, value);
  }
  return words;
}

// Empty if there is such a tenant, or if that is not known.
std::string advice_on_tenant(const Endpoints& endpoints, const Request& request) {
  const auto status = live_status(endpoints);
  if (!status) return "";
  std::vector<std::string_view> names;
  for (const auto& [slot, record] : status->snapshot.tenants) names.push_back(text_in(record.name));
  if (std::ranges::find(names, request.tenant) != names.end()) return "";
  if (const std::string_view near = nearest(request.tenant, names); !near.empty())
    return fmt::format("did you mean '{}'?", near);
  if (request.op != "set" && request.op != "attach" && request.op != "run") return "";
  if (const auto name = check_tenant_name(request.tenant); !name) return name.error().detail;
  return fmt::format("'gpushare set --create {}{}' makes it", request.tenant,
                     setting_words(request.settings));
}

}  // namespace

ExitCode report_refusal(const Endpoints& endpoints, const Request& request, const Error& error) {
  const ExitCode code = report(error);
  if (code != kExitUsage || request.tenant.empty() || request.create.value_or(false)) return code;
  if (const std::string advice = advice_on_tenant(endpoints, request); !advice.empty())
    fmt::print(stderr, "gpushare: {}\n", advice);
  return code;
}

std::vector<std::string> no_effect_warnings(const Endpoints& endpoints, std::string_view tenant,
                                            const SettingTexts& settings, bool has_shim) {
  if (settings.empty()) return {};
  auto status = live_status(endpoints);
  if (!status) return {};
  DoctorInput input;
  input.status = std::move(*status);
  std::vector<std::string> lines = without_effect(settings, check_limits(input), has_shim, tenant);
  for (std::string& line : lines) line.insert(0, "warning: ");
  return lines;
}

void warn_of_no_effect(const Endpoints& endpoints, std::string_view tenant,
                       const SettingTexts& settings, bool has_shim) {
  for (const std::string& line : no_effect_warnings(endpoints, tenant, settings, has_shim))
    fmt::print(stderr, "gpushare: {}\n", line);
}

uint32_t processes_on_gpus(const Endpoints& endpoints, const std::string& tenant) {
  const auto status = live_status(endpoints);
  if (!status) return 0;
  for (const auto& [slot, record] : status->snapshot.tenants)
    if (text_in(record.name) == tenant) return record.process_count;
  return 0;
}

}  // namespace gpushare
