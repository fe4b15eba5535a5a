// SPDX-License-Identifier: Apache-2.0
#include "sched/mps/clients.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpushare {

std::string names_of(std::span<const MpsClient> clients) {
  std::string text;
  for (const MpsClient& client : clients)
    text += fmt::format("{}tenant {}: {} (pid {})", text.empty() ? "" : ", ", client.tenant,
                        client.command, client.process.pid);
  return text;
}

void MpsClients::update(const ProcessId& process, bool has_fault, bool is_whole,
                        std::span<const ProcessId> clients, const Describe& describe) {
  Server& server = servers_[process];
  if (!has_fault) server.is_told = false;
  server.has_fault = has_fault;
  for (const ProcessId& client : clients) {
    const bool is_known = std::ranges::any_of(
        server.entries, [&](const Entry& entry) { return entry.client.process == client; });
    if (!is_known) server.entries.push_back({describe(client), std::nullopt, false});
  }
  std::erase_if(server.entries, [&](Entry& entry) {
    if (!is_whole) return false;
    const bool is_named = std::ranges::find(clients, entry.client.process) != clients.end();
    entry.unnamed = is_named ? 0 : entry.unnamed + 1;
    return !entry.ended && entry.unnamed >= kGone;
  });
  note_living();
}

std::optional<MpsIncident::Cause> MpsClients::cause_of(Time now, const Server& server) {
  using Cause = MpsIncident::Cause;
  if (server.has_fault && !server.is_told) return Cause::kFault;
  const bool has_client =
      std::ranges::any_of(server.entries, [](const Entry& entry) { return !entry.ended; });
  if (server.has_ended && has_client) return Cause::kServerEnded;
  for (const Entry& one : server.entries)
    for (const Entry& other : server.entries)
      if (one.ended && other.ended && !one.is_vague && !other.is_vague &&
          one.client.tenant != other.client.tenant && now - *one.ended < kTogether &&
          now - *other.ended < kTogether)
        return Cause::kTogether;
  return std::nullopt;
}

MpsIncident MpsClients::incident(const ProcessId& process, const Server& server, bool is_over) {
  MpsIncident incident{.cause = server.cause.value_or(MpsIncident::Cause::kTogether),
                       .is_over = is_over,
                       .server = process.pid,
                       .ended = {},
                       .alive = {}};
  for (const Entry& entry : server.entries)
    (entry.ended ? incident.ended : incident.alive).push_back(entry.client);
  return incident;
}

std::vector<MpsIncident> MpsClients::step(Time now, const HasEnded& has_ended) {
  std::vector<MpsIncident> incidents;
  const bool is_late = looked_ && now - *looked_ > kTogether;
  looked_ = now;
  for (auto& [process, server] : servers_) {
    for (Entry& entry : server.entries) {
      if (entry.ended || !has_ended(entry.client.process)) continue;
      entry.ended = now;
      entry.is_vague = is_late;
      has_news_ = true;
    }
    server.has_ended = server.has_ended || has_ended(process);
    if (!server.cause) {
      std::erase_if(server.entries, [&](const Entry& entry) {
        return entry.ended && now - *entry.ended > kBefore;
      });
      server.cause = cause_of(now, server);
      if (!server.cause) continue;
      server.since = now;
      incidents.push_back(incident(process, server, false));
    }
    const bool is_clean = std::ranges::all_of(
        server.entries, [](const Entry& entry) { return entry.ended.has_value(); });
    // After two that ended together more may follow.
    const bool is_over = server.cause == MpsIncident::Cause::kTogether
                             ? now - server.since >= kTogether
                             : is_clean || now - server.since >= kSettled;
    if (!is_over) continue;
    incidents.push_back(incident(process, server, true));
    std::erase_if(server.entries, [](const Entry& entry) { return entry.ended.has_value(); });
    server.cause.reset();
    server.is_told = server.has_fault;
    if (server.has_ended) server.entries.clear();
  }
  std::erase_if(servers_, [](const auto& entry) {
    return entry.second.has_ended && !entry.second.cause && entry.second.entries.empty();
  });
  note_living();
  return incidents;
}

std::size_t MpsClients::count() const {
  std::size_t count = 0;
  for (const auto& [process, server] : servers_)
    count += static_cast<std::size_t>(
        std::ranges::count_if(server.entries, [](const Entry& entry) { return !entry.ended; }));
  return count;
}

bool MpsClients::has_fault() const {
  return std::ranges::any_of(servers_, [](const auto& server) { return server.second.has_fault; });
}

bool MpsClients::contains(const ProcessId& process) const { return living_.contains(process); }

void MpsClients::note_living() {
  living_.clear();
  for (const auto& [process, server] : servers_)
    for (const Entry& entry : server.entries)
      if (!entry.ended) living_.insert(entry.client.process);
}

}  // namespace gpushare
