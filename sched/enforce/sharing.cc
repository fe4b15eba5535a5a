// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/sharing.h"

#include <algorithm>

namespace gpushare {
namespace {

// A number that the driver did not know is asked for again after this.
constexpr Nanos kAskAgain = std::chrono::seconds(1);
// An MPS server takes the next client at any time, so one that is alone stays a client for a while.
constexpr Nanos kAloneForGood = std::chrono::seconds(10);

}  // namespace

std::optional<uint32_t> Sharing::ask_number(ControlledGroup& group) {
  const Result<uint32_t> number = gpu_.hardware_group(group.ref);
  if (number) return *number;
  const bool is_known = number.error().code != std::errc::not_supported;
  group.ask_at = is_known ? clock_.now() + kAskAgain : Time::max();
  return std::nullopt;
}

std::vector<ControlKey> Sharing::join(ControlledGroup& group, const ControlKey& key) {
  std::vector<ControlKey> found;
  const Time now = clock_.now();
  if (group.hardware || now < group.ask_at || left_ <= Nanos{}) return found;
  group.hardware = ask_number(group);
  left_ -= clock_.now() - now;
  if (!group.hardware) return found;
  const uint32_t number = *group.hardware;
  sharers_[{key.second, number}].insert(key);
  check_sharers(key, number);
  const std::set<ControlKey>& sharers = sharers_[{key.second, number}];
  if (sharers.size() < 2) return found;
  for (const ControlKey& sharer : sharers) {
    Controlled& process = all_[sharer];
    process.shared_last = clock_.now();
    if (!process.shares_group) found.push_back(sharer);
  }
  return found;
}

bool Sharing::is_asked(const Controlled& process) {
  return std::ranges::none_of(process.groups, [](const ControlledGroup& group) {
    return !group.hardware && group.ask_at == Time{};
  });
}

// Whoever is thought to have the number, too, is asked for it now: a process whose groups were
// freed may not be followed yet.
void Sharing::check_sharers(const ControlKey& key, uint32_t number) {
  std::erase_if(sharers_[{key.second, number}], [&](const ControlKey& other) {
    if (other == key) return false;
    bool has_number = false;
    for (ControlledGroup& group : all_[other].groups) {
      if (group.hardware != number) continue;
      group.hardware.reset();
      group.ask_at = Time{};
      if (ask_number(group) == number) group.hardware = number;
      has_number |= group.hardware.has_value();
    }
    return !has_number;
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
