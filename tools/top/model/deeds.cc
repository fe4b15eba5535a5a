// SPDX-License-Identifier: Apache-2.0
#include "tools/top/model/deeds.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "shmctl/settings/record_settings.h"

namespace gpushare {
namespace {

Deed set(const std::string& tenant, std::string_view key, const std::string& from,
         const std::string& to) {
  return {.about = fmt::format("{} of {} from {} to {}", key, tenant, from, to),
          .requests = {{.op = "set", .tenant = tenant, .settings = {{std::string(key), to}}}}};
}

// 0: there is none of this name.
int signal_named(std::string_view typed) {
  int number = 0;
  const auto [end, error] = std::from_chars(typed.data(), typed.data() + typed.size(), number);
  if (error == std::errc() && end == typed.data() + typed.size())
    return number >= 1 && number < NSIG ? number : 0;
  std::string name(typed);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  if (name.starts_with("SIG")) name.erase(0, 3);
  for (number = 1; number < NSIG; ++number)
    if (const char* const known = ::sigabbrev_np(number); known != nullptr && name == known)
      return number;
  return 0;
}

std::string signal_name(int number) {
  const char* const known = ::sigabbrev_np(number);
  return known == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", known);
}

}  // namespace

Target target_of(const TopLine& line) {
  Target target;
  const auto add = [&](const ProcessRow& row) {
    const ProcessId id{.pid = row.record.pid, .start_ticks = row.record.start_ticks};
    if (std::ranges::find(target.processes, id) == target.processes.end())
      target.processes.push_back(id);
  };
  if (line.kind == TopLine::Kind::kProcess) {
    const ProcessRecord& process = line.process->record;
    add(*line.process);
    const std::string command = printable({process.command, sizeof(process.command)});
    target.words = fmt::format("process {}{}{} of tenant {}", process.pid,
                               command.empty() ? "" : " ", command, line.process->tenant);
    return target;
  }
  for (const ProcessRow* row : line.all) add(*row);
  const std::string count = fmt::format("({} {})", target.processes.size(),
                                        target.processes.size() == 1 ? "process" : "processes");
  if (line.kind == TopLine::Kind::kJob) {
    target.words = fmt::format("all of job {} of tenant {} {}", job_name(line.job),
                               tenant_text(*line.tenant), count);
  } else {
    target.tenant = tenant_text(*line.tenant);
    target.words = fmt::format("all of tenant {} {}{}", target.tenant,
                               line.has_below() ? "and of those below it " : "", count);
  }
  return target;
}

Deed freeze_deed(const Target& target, const char* op) {
  Deed deed{.about = fmt::format("{} {}", op, target.words)};
  if (!target.tenant.empty()) {
    deed.requests.push_back({.op = op, .tenant = target.tenant});
    return deed;
  }
  for (const ProcessId& process : target.processes)
    deed.requests.push_back({.op = op, .pid = process.pid, .start_ticks = process.start_ticks});
  return deed;
}

std::string setting_text(const TenantRecord& tenant, std::string_view key) {
  return format_setting(settings_of(tenant), key);
}

Result<Deed> setting_deed(const TenantRecord& tenant, std::string_view key,
                          std::string_view typed) {
  TenantSettings settings = settings_of(tenant);
  if (auto done = apply_setting(settings, key, typed); !done) return std::unexpected(done.error());
  return set(tenant_text(tenant), key, setting_text(tenant, key), std::string(typed));
}

Deed weight_deed(const TenantRecord& tenant, bool is_up) {
  const uint32_t weight = tenant.weight;
  const uint32_t step = std::max<uint32_t>(1, weight / 10);
  const uint32_t wanted =
      std::clamp<uint32_t>(is_up ? weight + step : weight - std::min(step, weight),
                           GPUSHARE_WEIGHT_MIN, GPUSHARE_WEIGHT_MAX);
  return set(tenant_text(tenant), "weight", std::to_string(weight), std::to_string(wanted));
}

Result<Deed> signal_deed(const Target& target, std::string_view typed) {
  const int number = signal_named(typed);
  if (number == 0)
    return make_error(
        std::errc::invalid_argument, "signal",
        fmt::format("there is no '{}'; TERM, KILL, INT, ... or 1 to {}", typed, NSIG - 1));
  Deed deed{.about = fmt::format("send {} to {}", signal_name(number), target.words)};
  for (const ProcessId& process : target.processes) deed.signals.push_back({process, number});
  return deed;
}

}  // namespace gpushare
