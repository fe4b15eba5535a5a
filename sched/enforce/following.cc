// SPDX-License-Identifier: Apache-2.0
// How the enforcer follows what the registry says of a process: what is gone is undone and left,
// what is new is met, and what could not be undone is tried again.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "sched/enforce/enforcer.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

// Whether the group's channel with this handle is the one that was frozen; nullopt: there is none.
std::optional<bool> is_the_frozen(const ComputeGroup& seen, uint32_t channel, uint64_t serial) {
  const auto at = std::ranges::lower_bound(seen.channels, channel);
  if (at == seen.channels.end() || *at != channel) return std::nullopt;
  return seen.serials[static_cast<std::size_t>(at - seen.channels.begin())] == serial;
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
// object that is really gone the freeze and the slice went with it. What may be another one by now
// is not thawed but frozen again, if it is to stay frozen. Returns false, and does nothing, while
// something of the process is under way.
bool Enforcer::leave_what_is_gone(const Target& target, Controlled& process) {
  const Holder& holder = *target.holder;
  const bool stays_frozen = target.is_frozen && process.is_frozen && !process.shares_group;
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
  ThawRounds freed;
  std::erase_if(process.groups, [&](ControlledGroup& group) {
    const ComputeGroup* const seen = seen_of(group);
    if (!is_same(seen, group)) {
      release(group, key, seen != nullptr);
      return true;
    }
    for (const auto& [channel, serial] : group.frozen) {
      const std::optional<bool> is_it = is_the_frozen(*seen, channel, serial);
      if (is_it == true) continue;
      const bool is_renewed = is_it.has_value() && serial != kDoubtful;
      if (!is_renewed || !stays_frozen || !group.may_freeze_again(channel))
        group.add_thaws(channel, freed);
    }
    return false;
  });
  process.has_doubt = !freed.empty();
  if (freed.empty() || lines_[key.second]->is_stuck()) return true;
  process.is_switching = true;
  ask(key.second, [this, key, freed = std::move(freed)]() -> DriverAnswer {
    const bool is_thawed = thaw(gpu_, key.second, freed).has_value();
    return [this, key, freed, is_thawed] { end_doubt(key, freed[0], is_thawed); };
  });
  collect(key.second);
  return !process.is_switching;
}

// What could not be thawed stays in `frozen`, and is tried again.
void Enforcer::end_doubt(const ControlKey& key, std::span<const ChannelRef> freed, bool is_thawed) {
  Controlled& process = processes_.at(key);  // it is not forgotten while something is under way
  process.is_switching = false;
  for (ControlledGroup& group : process.groups)
    for (const ChannelRef& channel : freed)
      if (is_thawed && channel.client == group.ref.client) group.forget(channel.channel);
  if (is_thawed) process.has_doubt = false;
  go_on(key);
}

void Enforcer::meet_what_is_new(const Holder& holder, Controlled& process) {
  const ControlKey key{holder.process, holder.gpu};
  for (const ComputeGroup& seen : holder.groups) {
    if (process.find(seen.ref) != nullptr) continue;
    const auto group = process.groups.emplace(process.place_of(seen.ref));
    group->ref = seen.ref;
    group->serial = seen.serial;
  }
  for (ControlledGroup& group : process.groups) sharing_.ask(group, key, *lines_[key.second]);
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
  log_about(key.first.pid, LogLevel::kWarning, "process {} is only observed: {}", key.first.pid,
            process.note);
  undo(key.second, std::span(&key, 1));
}

// Undoes what was done to a group that is not followed any more. A handle that is used again is
// another group's by now: a surplus thaw does not harm it, a slice might.
void Enforcer::release(ControlledGroup& group, const ControlKey& key, bool is_handle_used_again) {
  sharing_.leave(group, key);
  if (is_handle_used_again) slices_.drop(group);
  ThawRounds channels;
  for (const auto& [channel, serial] : group.frozen) group.add_thaws(channel, channels);
  const LedgerKey listed = ledger_key(group.ref, key.second);
  const bool was_left = leftovers_.contains(listed);  // of the group that had the handle before
  if (channels.empty() && !group.original) {
    if (!was_left) ledger_.clear_group(listed);
    return;
  }
  leftovers_.add(listed);  // until it is undone
  if (was_left || lines_[key.second]->is_stuck()) return;
  leftovers_.begin(listed);
  ask(key.second,
      [this, listed, ref = group.ref, original = group.original,
       channels = std::move(channels)]() -> DriverAnswer {
        const bool is_thawed = thaw(gpu_, listed.gpu, channels).has_value();
        const bool is_restored = !original || has_undone(gpu_.set_slice(ref, *original));
        return [this, listed, is_undone = is_thawed && is_restored,
                thawed = channels.empty() ? std::vector<ChannelRef>() : channels[0]] {
          released(listed, is_undone, thawed);
        };
      });
}

void Enforcer::released(const LedgerKey& listed, bool is_undone,
                        std::span<const ChannelRef> thawed) {
  leftovers_.end(listed, is_undone);
  if (is_undone) ledger_.clear_group(listed);
  doubt(listed.gpu, thawed);
}

void Enforcer::undo_leftovers(const ProcReader& processes, bool at_once) {
  if (lines_.empty()) return;
  const auto is_open = [this](uint32_t gpu) { return gpu_.closed_because(gpu).empty(); };
  for (const auto& due : leftovers_.begin_due(at_once, is_open)) {
    const auto recovery = std::make_shared<Recovery>(ledger_, processes, &due.second);
    stops_.stop_again(recovery->resume(gpu_));
    // What is listed of a GPU that is not there is found not to be there by any of the lines.
    const uint32_t line = due.first < lines_.size() ? due.first : 0;
    ask(line, [this, recovery, &processes, due]() -> DriverAnswer {
      recovery->carry_out(gpu_);
      return [this, recovery, &processes, due] {
        undone(due.first, due.second, recovery->finish(ledger_, processes));
      };
    });
  }
  if (at_once)
    (void)rest(kPatienceForLeftovers);
  else
    collect();
}

// Whether freezes of a group that is followed are listed under this name.
bool Enforcer::has_begun(const LedgerKey& key) const {
  const auto process = processes_.find({{key.pid, key.start_ticks}, key.gpu});
  return process != processes_.end() &&
         std::ranges::any_of(process->second.groups, [&](const ControlledGroup& group) {
           return group.begun > 0 && group.ref.client == key.client && group.ref.group == key.group;
         });
}

// Resuming a process for one GPU must not let it run that is to stand still for another.
void Enforcer::undone(uint32_t gpu, const std::set<LedgerKey>& tried,
                      const RecoveryReport& report) {
  leftovers_.end(gpu, tried, report);
  for (const ProcessId& process : report.thawed)
    log_info("process {} was left frozen: thawed", process.pid);
  stops_.stop_again(report.thawed);
  doubt(gpu, report.channels);
}

// These were thawed for what had their handles before: the parent of a child that inherited a
// descriptor, for example, or a group that was freed. Whoever has frozen them by now thaws them and
// freezes them again.
void Enforcer::doubt(uint32_t gpu, std::span<const ChannelRef> thawed) {
  if (thawed.empty()) return;
  std::set<std::pair<uint32_t, uint32_t>> names;
  for (const ChannelRef& channel : thawed) names.insert({channel.client, channel.channel});
  for (auto& [key, process] : processes_) {
    if (key.second != gpu) continue;
    for (ControlledGroup& group : process.groups) {
      for (auto& [channel, serial] : group.frozen) {
        if (!names.contains({group.ref.client, channel})) continue;
        serial = kDoubtful;
        process.has_doubt = true;
      }
    }
  }
}

}  // namespace gpushare
