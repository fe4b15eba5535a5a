// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/freezes.h"

#include <algorithm>
#include <utility>

namespace gpushare {
namespace {

// A channel that the driver did not know is named again after this.
constexpr Nanos kAskAgain = std::chrono::seconds(1);

// 0: the channel is not there.
uint64_t serial_of(const ComputeGroup& group, uint32_t channel) {
  const auto at = std::ranges::lower_bound(group.channels, channel);
  if (at == group.channels.end() || *at != channel) return 0;
  return group.serials[static_cast<std::size_t>(at - group.channels.begin())];
}

}  // namespace

Freezes::Begun Freezes::begin(const ControlTarget& target, Controlled& process) {
  FreezeDeed deed{.key = {target.holder->process, target.holder->gpu}, .parts = {}};
  for (const ComputeGroup& seen : target.holder->groups) {
    ControlledGroup& group = *process.find(seen.ref);
    std::vector<uint32_t> named;
    std::ranges::copy_if(seen.channels, std::back_inserter(named), [&](uint32_t channel) {
      return !group.frozen.contains(channel) &&
             std::ranges::find(group.gone, channel) == group.gone.end();
    });
    if (named.empty()) continue;
    FrozenChannels added;
    for (const uint32_t channel : named) added[channel] = serial_of(seen, channel);
    const Result<uint32_t> entry =
        ledger_.begin_freeze(ledger_key(group.ref, deed.key.second), group.ref.fd, named);
    if (!entry) {
      for (const FreezeDeed::Part& part : deed.parts) {
        ControlledGroup& begun = *process.find(part.ref);
        ledger_.end_thaw(begun.entry);
        --begun.begun;
      }
      return {.deed = std::nullopt, .refusal = entry.error()};
    }
    group.entry = *entry;
    ++group.begun;
    deed.parts.push_back({.ref = group.ref, .channels = std::move(added)});
  }
  if (deed.parts.empty() && process.is_frozen) return {};
  return {.deed = std::move(deed), .refusal = std::nullopt};
}

bool Freezes::end(const FreezeDeed& deed, Controlled& process) {
  for (const FreezeDeed::Part& part : deed.parts) {
    ControlledGroup& group = *process.find(part.ref);
    if (!part.gone.empty()) {
      group.gone.insert(group.gone.end(), part.gone.begin(), part.gone.end());
      group.gone_until = clock_.now() + kAskAgain;
    }
    if (deed.result) {
      group.frozen.insert(part.channels.begin(), part.channels.end());
    } else if (part.is_taken_back) {
      ledger_.end_thaw(group.entry);
      --group.begun;
    } else {
      for (const auto& [channel, serial] : part.channels) group.frozen[channel] = kDoubtful;
      process.has_doubt = true;
    }
  }
  const bool may_be_frozen = std::ranges::any_of(
      process.groups, [](const ControlledGroup& group) { return group.begun > 0; });
  if (!deed.result && !may_be_frozen) return false;
  if (std::exchange(process.is_frozen, true)) return false;  // only its new channels
  if (deed.result) ++process.freezes;
  return true;
}

ThawDeed Freezes::thaw_of(const ControlKey& key, const Controlled& process) {
  ThawDeed deed{.key = key, .channels = {}};
  for (const ControlledGroup& group : process.groups)
    for (const auto& [channel, serial] : group.frozen)
      deed.channels.push_back({group.ref.client, channel});
  return deed;
}

void Freezes::thawed(Controlled& process) {
  for (ControlledGroup& group : process.groups) {
    for (; group.begun > 0; --group.begun) ledger_.end_thaw(group.entry);
    group.frozen.clear();
  }
  if (const auto entry = std::exchange(process.stop_entry, std::nullopt)) ledger_.end_thaw(*entry);
  process.is_frozen = false;
}

void Freezes::not_thawed(Controlled& process) {
  process.has_doubt = true;
  for (ControlledGroup& group : process.groups)
    for (auto& [channel, serial] : group.frozen) serial = kDoubtful;
}

}  // namespace gpushare
