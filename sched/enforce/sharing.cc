// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/sharing.h"

#include <algorithm>
#include <iterator>

namespace gpushare {
namespace {

// An MPS server takes the next client at any time, so one that is alone stays a client for a while.
constexpr Nanos kAloneForGood = std::chrono::seconds(10);

}  // namespace

void Sharing::ask(ControlledGroup& group, const ControlKey& key, DriverLine& line) {
  if (group.hardware || group.is_asked_for || clock_.now() < group.ask_at) return;
  ask({{.key = key, .ref = group.ref, .serial = group.serial}}, line);
}

void Sharing::ask(std::vector<Asked> groups, DriverLine& line) {
  for (const Asked& one : groups) find(one)->is_asked_for = true;
  line.ask([this, &line, groups = std::move(groups)]() mutable -> DriverAnswer {
    for (Asked& one : groups) one.number = gpu_.hardware_group(one.ref);
    return [this, &line, groups = std::move(groups)] { enter(groups, line); };
  });
}

// nullptr: it is not followed any more, or its handle was used again.
ControlledGroup* Sharing::find(const Asked& asked) {
  const auto process = all_.find(asked.key);
  ControlledGroup* const group = process == all_.end() ? nullptr : process->second.find(asked.ref);
  return group != nullptr && group->serial == asked.serial ? group : nullptr;
}

// Those of other processes that are thought to be there and are not in `groups`: they are there no
// more, until they are asked.
std::vector<Sharing::Asked> Sharing::others_at(const Place& place,
                                               const std::vector<Asked>& groups) {
  std::vector<Asked> others;
  std::erase_if(sharers_[place], [&](const ControlKey& key) {
    if (std::ranges::find(groups, key, &Asked::key) != groups.end()) return false;
    for (ControlledGroup& group : all_.at(key).groups) {
      if (group.hardware != place.second) continue;
      group.hardware.reset();
      group.ask_at = Time{};
      others.push_back({.key = key, .ref = group.ref, .serial = group.serial});
    }
    return true;
  });
  return others;
}

// What was asked for together is true together.
void Sharing::enter(const std::vector<Asked>& groups, DriverLine& line) {
  std::map<Place, std::vector<Asked>> said;
  for (const Asked& one : groups) {
    ControlledGroup* const group = find(one);
    if (group == nullptr) continue;
    group->is_asked_for = false;
    if (one.number) {
      said[{one.key.second, *one.number}].push_back(one);
    } else {
      const bool is_known = one.number.error().code != std::errc::not_supported;
      group->ask_at = is_known ? clock_.now() + kAskAgain : Time::max();
    }
  }
  std::set<ControlKey> found;
  for (auto& [place, there] : said) {
    if (std::vector<Asked> others = others_at(place, there); !others.empty()) {
      std::ranges::move(others, std::back_inserter(there));
      ask(std::move(there), line);
      continue;
    }
    std::set<ControlKey>& sharers = sharers_[place];
    for (const Asked& one : there) {
      find(one)->hardware = place.second;
      sharers.insert(one.key);
    }
    if (sharers.size() > 1) found.insert(sharers.begin(), sharers.end());
  }
  for (const ControlKey& key : found) {
    const auto at = all_.find(key);  // not one that goes because of the one before
    if (at == all_.end()) continue;
    at->second.shared_last = clock_.now();
    if (!at->second.shares_group) share_(key);
  }
}

bool Sharing::is_asked(const Controlled& process) {
  return std::ranges::none_of(process.groups, [](const ControlledGroup& group) {
    return !group.hardware && group.ask_at == Time{};
  });
}

void Sharing::leave(const ControlledGroup& group, const ControlKey& key) {
  if (!group.hardware) return;
  const auto at = sharers_.find({key.second, *group.hardware});
  if (at == sharers_.end()) return;
  at->second.erase(key);
  if (at->second.empty()) sharers_.erase(at);
}

bool Sharing::is_over(const ControlKey& key, Controlled& process) const {
  if (!process.shares_group) return false;
  const bool shares_now = std::ranges::any_of(process.groups, [&](const ControlledGroup& group) {
    if (!group.hardware) return false;
    const auto at = sharers_.find({key.second, *group.hardware});
    return at != sharers_.end() && at->second.size() > 1;
  });
  if (shares_now) process.shared_last = clock_.now();
  return !shares_now && !process.stop_entry && clock_.now() - process.shared_last >= kAloneForGood;
}

}  // namespace gpushare
