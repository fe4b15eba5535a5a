// SPDX-License-Identifier: Apache-2.0
// How the enforcer follows what the registry says of a process: what is gone is undone and left,
// what is new is met.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sched/enforce/enforcer.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

// Whether the group's channel with this handle is the one that was frozen.
bool has_channel(const ComputeGroup& seen, uint32_t channel, uint64_t serial) {
  const auto at = std::ranges::lower_bound(seen.channels, channel);
  return at != seen.channels.end() && *at == channel &&
         seen.serials[static_cast<std::size_t>(at - seen.channels.begin())] == serial;
}

}  // namespace

// Whether there is nothing to leave and nothing to meet, as nearly always.
bool Enforcer::is_as_before(const Holder& holder, const Controlled& process) {
  return process.generation == holder.generation && !process.shares_group && !process.has_doubt &&
         std::ranges::all_of(process.groups, [](const ControlledGroup& group) {
           return group.hardware && group.gone.empty();
         });
}

// Thaws what the registry has no more before it is forgotten: the registry may be wrong, and of an
// object that is really gone the freeze and the slice went with it. Returns false, and does
// nothing, while something of the process is under way.
bool Enforcer::leave_what_is_gone(const Holder& holder, Controlled& process) {
  const ControlKey key{holder.process, holder.gpu};
  if (process.is_switching || process.is_forgotten) return false;
  const auto seen_of = [&](const ControlledGroup& group) {
    const auto seen = std::ranges::find_if(holder.groups, [&](const ComputeGroup& candidate) {
      return candidate.ref.client == group.ref.client && candidate.ref.group == group.ref.group;
    });
    return seen == holder.groups.end() ? nullptr : &*seen;
  };
  const auto is_same = [](const ComputeGroup* seen, const ControlledGroup& group) {
    return seen != nullptr && seen->ref.fd == group.ref.fd && seen->serial == group.serial;
  };
  const bool has_gone = std::ranges::any_of(process.groups, [&](const ControlledGroup& group) {
    return !is_same(seen_of(group), group);
  });
  if (has_gone && !lines_[key.second]->withdraw(key)) return false;
  std::vector<ChannelRef> freed;
  std::erase_if(process.groups, [&](ControlledGroup& group) {
    const ComputeGroup* const seen = seen_of(group);
    if (!is_same(seen, group)) {
      release(group, key, seen != nullptr);
      return true;
    }
    for (const auto& [channel, serial] : group.frozen)
      if (serial == kDoubtful || !has_channel(*seen, channel, serial))
        freed.push_back({group.ref.client, channel});
    return false;
  });
  process.has_doubt = !freed.empty();
  if (freed.empty() || lines_[key.second]->is_stuck()) return true;
  if (const Result<> thawed = gpu_.thaw(holder.gpu, freed); !thawed && !is_gone(thawed.error()))
    return true;  // stays in `frozen`, and is tried again
  for (ControlledGroup& group : process.groups)
    std::erase_if(group.frozen, [&](const auto& one) {
      return std::ranges::find(freed, ChannelRef{group.ref.client, one.first}) != freed.end();
    });
  process.has_doubt = false;
  return true;
}

void Enforcer::meet_what_is_new(const Holder& holder, Controlled& process) {
  const ControlKey key{holder.process, holder.gpu};
  for (const ComputeGroup& seen : holder.groups) {
    if (process.find(seen.ref) != nullptr) continue;
    process.groups.push_back({});
    process.groups.back().ref = seen.ref;
    process.groups.back().serial = seen.serial;
  }
  for (ControlledGroup& group : process.groups)
    for (const ControlKey& sharer : sharing_.join(group, key)) share(sharer, processes_[sharer]);
  if (sharing_.is_over(key, process)) {
    process.shares_group = false;
    process.note.clear();
  }
  look_at_classes(key, process, holder);
  const bool is_changed = std::exchange(process.generation, holder.generation) != holder.generation;
  for (ControlledGroup& group : process.groups)
    if (is_changed || clock_.now() >= group.gone_until) group.gone.clear();
}

void Enforcer::look_at_classes(const ControlKey& key, Controlled& process, const Holder& holder) {
  const auto unknown = std::ranges::find_if(
      holder.channel_classes, [&](uint32_t id) { return !gpu_.knows_channel_class(id); });
  const bool has_unknown = unknown != holder.channel_classes.end();
  if (!has_unknown || process.has_unknown_class) {
    process.has_unknown_class = has_unknown;
    return;
  }
  process.has_unknown_class = true;
  process.note = fmt::format("channel class {:#06x} is not known: observed only", *unknown);
  log_warning("process {} is only observed: {}", key.first.pid, process.note);
  undo(key.second, std::span(&key, 1));
}

// Undoes what was done to a group that is not followed any more. A handle that is used again is
// another group's by now: a surplus thaw does not harm it, a slice might.
void Enforcer::release(ControlledGroup& group, const ControlKey& key, bool is_handle_used_again) {
  sharing_.leave(group, key);
  if (is_handle_used_again) slices_.drop(group);
  std::vector<ChannelRef> channels;
  for (const auto& [channel, serial] : group.frozen)
    channels.push_back({group.ref.client, channel});
  const LedgerKey listed = ledger_key(group.ref, key.second);
  if (lines_[key.second]->is_stuck()) return leftovers_.add(listed);
  const Result<> thawed = channels.empty() ? Result<>() : gpu_.thaw(key.second, channels);
  const bool is_thawed = thawed || is_gone(thawed.error());
  const bool is_restored = slices_.restore_now(group);
  if (!is_restored || !is_thawed)
    leftovers_.add(listed);
  else if (!leftovers_.contains(listed))  // of the group that had the handle before
    ledger_.clear_group(listed);
}

}  // namespace gpushare
