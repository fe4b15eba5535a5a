// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/freezes.h"

#include <algorithm>
#include <utility>

namespace gpushare {
namespace {

// 0: the channel is not there.
uint64_t serial_of(const ComputeGroup& group, uint32_t channel) {
  const auto at = std::ranges::lower_bound(group.channels, channel);
  if (at == group.channels.end() || *at != channel) return 0;
  return group.serials[static_cast<std::size_t>(at - group.channels.begin())];
}

// Also what is frozen, if it may be another one of this handle by now.
bool is_to_freeze(const ControlledGroup& group, uint32_t channel, uint64_t serial) {
  const auto frozen = group.frozen.find(channel);
  return frozen == group.frozen.end() || (frozen->second != kDoubtful && frozen->second != serial);
}

}  // namespace

Freezes::Begun Freezes::begin(const ControlTarget& target, Controlled& process) {
  FreezeDeed deed{.key = {target.holder->process, target.holder->gpu}, .parts = {}};
  for (const ComputeGroup& seen : target.holder->groups) {
    ControlledGroup& group = *process.find(seen.ref);
    std::vector<uint32_t> named;
    std::ranges::copy_if(seen.channels, std::back_inserter(named), [&](uint32_t channel) {
      return is_to_freeze(group, channel, serial_of(seen, channel)) &&
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
      for (const uint32_t channel : part.gone) group.forget(channel);
      group.gone.insert(group.gone.end(), part.gone.begin(), part.gone.end());
      group.gone_until = clock_.now() + kAskAgain;
    }
    if (deed.result) {
      for (const auto& [channel, serial] : part.channels)
        if (!group.frozen.insert_or_assign(channel, serial).second) ++group.again[channel];
      continue;
    }
    if (part.is_taken_back) {
      ledger_.end_thaw(group.entry);
      --group.begun;
    }
    // What was frozen before may have been taken back with it.
    for (const auto& [channel, serial] : part.channels) {
      if (part.is_taken_back && !group.frozen.contains(channel)) continue;
      // It may be frozen once more than before.
      if (!group.frozen.insert_or_assign(channel, kDoubtful).second && !part.is_taken_back)
        ++group.again[channel];
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
  ThawDeed deed{.key = key, .rounds = {}};
  for (const ControlledGroup& group : process.groups)
    for (const auto& [channel, serial] : group.frozen) group.add_thaws(channel, deed.rounds);
  return deed;
}

void Freezes::thawed(Controlled& process) {
  for (ControlledGroup& group : process.groups) {
    for (; group.begun > 0; --group.begun) ledger_.end_thaw(group.entry);
    group.frozen.clear();
    group.again.clear();
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
