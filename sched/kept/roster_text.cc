// SPDX-License-Identifier: Apache-2.0
#include "sched/kept/roster_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "sched/tenants/tenant_records.h"

namespace gpushare {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr const char* kStep = "read what was set at run time";

struct Flag {
  const char* key;
  uint32_t bit;
};
constexpr std::array kTenantFlags{Flag{"kept", kRosterKept}, Flag{"transient", kRosterTransient},
                                  Flag{"frozen", kRosterFrozen}};
// That a process is attached is said by the tenant that it names.
constexpr std::array kProcessFlags{Flag{"inherited", kRosterInherited},
                                   Flag{"frozen", kRosterFrozen}};

template <class Flags>
void put_flags(Json& item, uint32_t set, const Flags& flags) {
  for (const auto& [key, bit] : flags)
    if ((set & bit) != 0) item[key] = true;
}

template <class Flags>
uint32_t flags_of(const Json& item, const Flags& flags) {
  uint32_t set = 0;
  for (const auto& [key, bit] : flags)
    if (item.value(key, false)) set |= bit;
  return set;
}

// The words of the file, for the log.
std::string shown(std::string text) {
  text.resize(std::min<std::size_t>(text.size(), 200));
  std::ranges::replace_if(text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

template <class T>
T whole(const Json& item, const char* key) {
  const auto number = item.at(key).get<int64_t>();
  if (number < 0 || static_cast<uint64_t>(number) > std::numeric_limits<T>::max())
    throw std::out_of_range(fmt::format("'{}' is {}", key, number));
  return static_cast<T>(number);
}

class Parser {
 public:
  explicit Parser(ParsedRoster& parsed) : parsed_(parsed) {}

  // Takes each item of a list for itself.
  template <class Take>
  void each(const Json& json, const char* list, const char* what, Take take) {
    if (!json.contains(list)) return;
    for (const Json& item : json.at(list)) {
      try {
        take(item);
      } catch (const std::exception& error) {
        leave_out(fmt::format("a {} is not understood: {}", what, error.what()));
      }
    }
  }
  void take_tenant(const Json& item);
  void take_process(const Json& item);
  void take_scope(const Json& item);
  void leave_out(const std::string& why) { parsed_.left_out.push_back(shown(why)); }

 private:
  uint32_t slot_of(const Json& item) const {
    const auto name = item.at("tenant").get<std::string>();
    const auto slot = slots_.find(name);
    if (slot == slots_.end()) throw std::out_of_range("there is no tenant '" + name + "'");
    return slot->second;
  }
  std::vector<Setting> settings_of(const Json& item, const std::string& tenant);

  ParsedRoster& parsed_;
  std::map<std::string, uint32_t> slots_;
  std::set<std::string> unknown_;  // keys that were told
  uint32_t next_ = kDefaultTenant + 1;
};

std::vector<Setting> Parser::settings_of(const Json& item, const std::string& tenant) {
  std::vector<Setting> settings;
  if (!item.contains("settings")) return settings;
  TenantSettings scratch;
  for (const auto& [key, value] : item.at("settings").items()) {
    if (std::ranges::find(setting_keys(), key) == setting_keys().end()) {
      if (unknown_.insert(key).second)
        leave_out(fmt::format("this version has no setting '{}'", key));
      continue;
    }
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (const auto applied = apply_setting(scratch, key, text); applied)
      settings.push_back({key, text});
    else
      leave_out(fmt::format("tenant '{}': {}", tenant, applied.error().message()));
  }
  return settings;
}

void Parser::take_tenant(const Json& item) {
  Tenant tenant;
  tenant.name = item.at("name").get<std::string>();
  if (const auto named = check_tenant_name(tenant.name); !named)
    return leave_out(named.error().message());
  if (slots_.contains(tenant.name))
    return leave_out(fmt::format("there are two tenants '{}'", tenant.name));
  if (next_ == kMaxTenants) return leave_out(fmt::format("no slot is left for '{}'", tenant.name));
  tenant.at_run_time = settings_of(item, tenant.name);
  const uint32_t slot = tenant.name == kDefaultTenantName ? kDefaultTenant : next_++;
  slots_[tenant.name] = slot;
  RosterTenant& record = parsed_.roster.tenants[slot] = roster_record(tenant);
  record.flags = flags_of(item, kTenantFlags);
}

void Parser::take_process(const Json& item) {
  RosterProcess process;
  process.pid = whole<int32_t>(item, "pid");
  process.start_ticks = whole<uint64_t>(item, "start_ticks");
  process.flags = flags_of(item, kProcessFlags);
  if (item.contains("tenant")) {
    process.tenant = slot_of(item);
    process.flags |= kRosterAttached;
  }
  if (item.contains("run")) {
    process.run = whole<uint32_t>(item, "run");
    process.flags |= kRosterRun;
  }
  if (process.pid == 0) throw std::out_of_range("its pid is 0");
  parsed_.roster.processes.push_back(process);
}

void Parser::take_scope(const Json& item) {
  parsed_.roster.scopes.insert_or_assign(item.at("cgroup").get<std::string>(), slot_of(item));
}

}  // namespace

std::string roster_text(const Roster::Copy& roster, std::string_view boot) {
  Json tenants = Json::array(), processes = Json::array(), scopes = Json::array();
  for (const auto& [slot, record] : roster.tenants) {
    const auto tenant = tenant_from(record);
    if (!tenant) continue;
    Json item{{"name", tenant->name}};
    put_flags(item, record.flags, kTenantFlags);
    for (const Setting& setting : tenant->at_run_time)
      item["settings"][setting.key] = setting.value;
    tenants.push_back(std::move(item));
  }
  const auto name_of = [&](uint32_t slot) -> std::optional<std::string> {
    const auto tenant = roster.tenants.find(slot);
    return tenant == roster.tenants.end() ? std::nullopt
                                          : std::optional<std::string>(tenant->second.name);
  };
  for (const RosterProcess& process : roster.processes) {
    Json item{{"pid", process.pid}, {"start_ticks", process.start_ticks}};
    put_flags(item, process.flags, kProcessFlags);
    if ((process.flags & kRosterAttached) != 0)
      if (const auto tenant = name_of(process.tenant)) item["tenant"] = *tenant;
    if ((process.flags & kRosterRun) != 0) item["run"] = process.run;
    processes.push_back(std::move(item));
  }
  for (const auto& [cgroup, slot] : roster.scopes)
    if (const auto tenant = name_of(slot))
      scopes.push_back({{"cgroup", cgroup}, {"tenant", *tenant}});
  const Json json{{"format", kFormat},
                  {"boot", boot},
                  {"tenants_in_sysfs", roster.head.are_tenants_in_sysfs != 0},
                  {"module_instance", roster.head.module_instance},
                  {"tenants", std::move(tenants)},
                  {"processes", std::move(processes)},
                  {"scopes", std::move(scopes)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<ParsedRoster> parse_roster(std::string_view text, std::string_view boot) {
  ParsedRoster parsed;
  Parser parser(parsed);
  try {
    const Json json = Json::parse(text);
    if (const Json& format = json.at("format"); format != kFormat)
      return make_error(
          std::errc::invalid_argument, kStep,
          fmt::format("it has format {}, this version reads {}", shown(format.dump()), kFormat));
    parsed.roster.head.are_tenants_in_sysfs = json.value("tenants_in_sysfs", false) ? 1 : 0;
    parsed.roster.head.module_instance = json.value("module_instance", 0u);
    parser.each(json, "tenants", "tenant", [&](const Json& item) { parser.take_tenant(item); });
    if (json.value("boot", "") == boot)
      parser.each(json, "processes", "process",
                  [&](const Json& item) { parser.take_process(item); });
    else if (json.contains("processes") && !json.at("processes").empty())
      parser.leave_out("the processes are those of before the machine was started again");
    parser.each(json, "scopes", "cgroup", [&](const Json& item) { parser.take_scope(item); });
  } catch (const Json::exception& error) {
    return make_error(std::errc::invalid_argument, kStep, shown(error.what()));
  }
  return parsed;
}

}  // namespace gpushare
