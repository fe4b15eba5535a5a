// SPDX-License-Identifier: Apache-2.0
// Acknowledged: what the agents of a test have said yes to, in the simplest form that there is, to
// compare the next agent with. For tests that kill agents.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sched/tenants/tenants.h"

namespace gpushare::test {

struct Acknowledged {
  struct OfTenant {
    std::map<std::string, std::string> settings{};  // all of them, as they are in force
    bool is_frozen = false, is_transient = false;
    bool operator==(const OfTenant&) const = default;
  };
  std::map<std::string, OfTenant> tenants{};
  std::map<pid_t, std::string> attached{};
  std::set<pid_t> frozen{};
  bool operator==(const Acknowledged&) const = default;

  OfTenant& make(const std::string& name, bool is_transient = false) {
    const auto [at, is_new] = tenants.try_emplace(name);
    if (is_new) {
      at->second.is_transient = is_transient;
      for (const Setting& setting : format_settings({}))
        at->second.settings[setting.key] = setting.value;
    }
    return at->second;
  }
  void set(const std::string& name, const std::vector<Setting>& settings) {
    OfTenant& tenant = make(name);
    for (const Setting& setting : settings) tenant.settings[setting.key] = setting.value;
  }
  void attach(pid_t pid, const std::string& name) {
    attached[pid] = name;
    drop_the_finished();
  }
  void remove(const std::string& name) {
    tenants.erase(name);
    const std::string above(name_above(name));
    if (above.empty())
      std::erase_if(attached, [&](const auto& entry) { return entry.second == name; });
    for (auto& [pid, tenant] : attached)
      if (tenant == name) tenant = above;
  }
  void end(pid_t pid) {
    attached.erase(pid);
    frozen.erase(pid);
    drop_the_finished();
  }
  // Whether a process in this tenant stands: itself, with its tenant, or with one above that.
  bool stands(pid_t pid, std::string_view tenant) const {
    bool is_so = frozen.contains(pid);
    for (; !tenant.empty(); tenant = name_above(tenant))
      is_so |= tenants.at(std::string(tenant)).is_frozen;
    return is_so;
  }
  void drop_the_finished() {
    std::erase_if(tenants, [&](const auto& entry) {
      return entry.second.is_transient && std::ranges::none_of(attached, [&](const auto& process) {
               return process.second == entry.first;
             });
    });
  }
};

// What an agent has, of the processes that live.
inline Acknowledged seen_in(const Tenants& tenants, const std::set<ProcessId>& alive) {
  Acknowledged seen;
  for (const uint32_t slot : tenants.slots()) {
    const Tenant& tenant = *tenants.at(slot);
    Acknowledged::OfTenant& of = seen.tenants[tenant.name];
    of.is_frozen = tenant.is_frozen_by_user;
    of.is_transient = tenant.is_transient;
    for (const Setting& setting : format_settings(tenant.settings))
      of.settings[setting.key] = setting.value;
  }
  for (const auto& [process, slot] : tenants.attached())
    if (alive.contains(process)) seen.attached[process.pid] = tenants.at(slot)->name;
  for (const ProcessId& process : alive)
    if (tenants.is_frozen(process)) seen.frozen.insert(process.pid);
  seen.drop_the_finished();
  return seen;
}

// For messages.
inline std::string text_of(const Acknowledged& all) {
  std::string text;
  for (const auto& [name, tenant] : all.tenants) {
    text += name + (tenant.is_frozen ? " frozen" : "") + (tenant.is_transient ? " transient" : "");
    for (const auto& [key, value] : tenant.settings) text += " " + key + "=" + value;
    text += "\n";
  }
  for (const auto& [pid, name] : all.attached) text += std::to_string(pid) + " in " + name + "\n";
  for (const pid_t pid : all.frozen) text += std::to_string(pid) + " frozen\n";
  return text;
}

}  // namespace gpushare::test
