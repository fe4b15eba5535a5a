// SPDX-License-Identifier: Apache-2.0
#include "sched/step/enforcer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

constexpr int kRefusalsBelieved = 2;
// What CUDA programs choose at their start; for a group whose slice nobody has seen.
constexpr Micros kUnknownSlice{2048};
constexpr double kLeastError = 1e-9;
constexpr const char* kSharesGroup =
    "an MPS client: it has its server's slice, and a freeze stops the process";

bool is_gone(const Error& error) { return error.code == std::errc::no_such_process; }

bool is_same_group(const GroupRef& a, const GroupRef& b) {
  return a.client == b.client && a.group == b.group;
}

std::vector<ChannelRef> refs(uint32_t client, std::span<const uint32_t> channels) {
  std::vector<ChannelRef> out;
  for (const uint32_t channel : channels) out.push_back({client, channel});
  return out;
}

}  // namespace

Enforcer::Enforcer(Gpu& gpu, Ledger& ledger, const Clock& clock,
                   std::function<void(const Change&)> changed)
    : gpu_(gpu), ledger_(ledger), clock_(clock), on_change_(std::move(changed)) {}

void Enforcer::apply(uint32_t gpu, std::span<const Target> targets) {
  for (const Target& target : targets)
    follow(processes_[{target.holder->process, gpu}], *target.holder);

  if (gpu_.support().can_freeze) freeze(gpu, targets);
  if (gpu_.support().can_set_slice) set_slices(gpu, targets);
  std::vector<Key> thawing;
  for (const Target& target : targets) {
    const Key key{target.holder->process, gpu};
    if (!target.is_frozen && processes_[key].is_frozen) thawing.push_back(key);
  }
  for (const auto& [key, process] : processes_)  // no plan names them any more
    if (key.second == gpu && !process.can_control && process.is_frozen) thawing.push_back(key);
  thaw(gpu, thawing);
}

// Drops what the process has freed: with the object its freeze and slice went too.
void Enforcer::follow(Controlled& process, const Holder& holder) {
  for (Group& group : process.groups) {
    const auto seen = std::ranges::find_if(holder.groups, [&](const ComputeGroup& candidate) {
      return is_same_group(candidate.ref, group.ref);
    });
    if (seen == holder.groups.end() || seen->ref.fd != group.ref.fd) {
      ledger_.clear_group(ledger_key(group.ref, holder.gpu));
      leave(group, {holder.process, holder.gpu});
      group.ref.group = 0;  // marks it; no handle is 0
    } else {
      std::erase_if(group.frozen, [&](uint32_t channel) {
        return !std::ranges::binary_search(seen->channels, channel);
      });
    }
  }
  std::erase_if(process.groups, [](const Group& group) { return group.ref.group == 0; });
  for (const ComputeGroup& seen : holder.groups) {
    const bool is_known = std::ranges::any_of(
        process.groups, [&](const Group& group) { return is_same_group(group.ref, seen.ref); });
    if (is_known) continue;
    process.groups.emplace_back().ref = seen.ref;
    join(process.groups.back(), {holder.process, holder.gpu});
  }
  const auto unknown = std::ranges::find_if(
      holder.channel_classes, [&](uint32_t id) { return !gpu_.knows_channel_class(id); });
  if (unknown != holder.channel_classes.end() && process.can_control)
    only_observe({holder.process, holder.gpu}, process,
                 fmt::format("channel class {:#06x} is not known: observed only", *unknown));
}

// Whoever has once shared a group is treated so to its end: its server takes the next client at any
// time.
void Enforcer::join(Group& group, const Key& key) {
  const Result<uint32_t> number = gpu_.hardware_group(group.ref);
  if (!number) return;
  group.hardware = *number;
  std::set<Key>& sharers = sharers_[{key.second, *number}];
  sharers.insert(key);
  if (sharers.size() < 2) return;
  for (const Key& sharer : sharers) {
    Controlled& process = processes_[sharer];
    if (!process.shares_group) share(sharer, process);
  }
}

void Enforcer::share(const Key& key, Controlled& process) {
  process.shares_group = true;
  if (process.is_frozen) thaw(key.second, std::span(&key, 1));
  for (Group& group : process.groups) restore(group);
  process.note = kSharesGroup;
}

void Enforcer::stop(const Key& key, Controlled& process) {
  if (process.stop_entry) return;
  // Channels that share() could not thaw hold everybody in the group.
  if (process.is_frozen) thaw(key.second, std::span(&key, 1));
  if (process.is_frozen) return;
  // No client and no group: the entry means the process itself.
  const LedgerKey own{
      .pid = key.first.pid, .start_ticks = key.first.start_ticks, .gpu = key.second};
  const Result<uint32_t> entry = ledger_.begin_freeze(own, -1, {});
  if (!entry) return refused(key, process, entry.error());
  if (const Result<> stopped = gpu_.stop(key.first); !stopped) {
    ledger_.end_thaw(*entry);
    return refused(key, process, stopped.error());
  }
  process.refusals = 0;
  process.stop_entry = *entry;
  process.is_frozen = true;
  ++process.freezes;
  changed(Change::Kind::kFreeze, key);
}

// A process that was stopped for two GPUs runs on when neither wants it stopped.
Result<> Enforcer::resume(const Key& key) {
  const bool is_wanted_elsewhere = std::ranges::any_of(processes_, [&](const auto& other) {
    return other.first.first == key.first && other.first != key && other.second.stop_entry;
  });
  return is_wanted_elsewhere ? Result<>() : gpu_.resume(key.first);
}

void Enforcer::leave(const Group& group, const Key& key) {
  if (!group.hardware) return;
  const auto at = sharers_.find({key.second, *group.hardware});
  if (at == sharers_.end()) return;
  at->second.erase(key);
  if (at->second.empty()) sharers_.erase(at);
}

void Enforcer::freeze(uint32_t gpu, std::span<const Target> targets) {
  std::vector<Freezing> list;
  std::vector<ChannelRef> channels;
  for (const Target& target : targets) {
    Controlled& process = processes_[{target.holder->process, gpu}];
    if (!target.is_frozen || !process.can_control) continue;
    if (process.shares_group) {
      stop({target.holder->process, gpu}, process);
      continue;
    }
    std::optional<Freezing> freezing = begin(target, process);
    if (!freezing) continue;
    for (const auto& [group, added] : freezing->parts)
      for (const ChannelRef& ref : refs(group->ref.client, added)) channels.push_back(ref);
    list.push_back(std::move(*freezing));
  }
  if (list.empty()) return;

  const Result<> together = channels.empty() ? Result<>() : gpu_.freeze(gpu, channels);
  for (Freezing& freezing : list) {
    if (together || list.size() == 1) {
      end(freezing, together);
      continue;
    }
    std::vector<ChannelRef> own;
    for (const auto& [group, added] : freezing.parts)
      for (const ChannelRef& ref : refs(group->ref.client, added)) own.push_back(ref);
    end(freezing, own.empty() ? Result<>() : gpu_.freeze(gpu, own));
  }
}

// Finds what is not frozen yet and writes it ahead. nullopt: nothing to do, or the ledger is full.
std::optional<Enforcer::Freezing> Enforcer::begin(const Target& target, Controlled& process) {
  Freezing freezing{.target = &target, .process = &process, .parts = {}};
  const Key key{target.holder->process, target.holder->gpu};
  for (std::size_t i = 0; i < target.holder->groups.size(); ++i) {
    const ComputeGroup& seen = target.holder->groups[i];
    Group& group = *std::ranges::find_if(
        process.groups, [&](const Group& known) { return is_same_group(known.ref, seen.ref); });
    std::vector<uint32_t> added;
    std::ranges::copy_if(seen.channels, std::back_inserter(added), [&](uint32_t channel) {
      return std::ranges::find(group.frozen, channel) == group.frozen.end();
    });
    if (added.empty()) continue;
    const Result<uint32_t> entry =
        ledger_.begin_freeze(ledger_key(group.ref, key.second), group.ref.fd, added);
    if (!entry) {
      for (const auto& [begun, unused] : freezing.parts) {
        ledger_.end_thaw(begun->entry);
        --begun->begun;
      }
      refused(key, process, entry.error());
      return std::nullopt;
    }
    group.entry = *entry;
    ++group.begun;
    freezing.parts.emplace_back(&group, std::move(added));
  }
  if (freezing.parts.empty() && process.is_frozen) return std::nullopt;
  return freezing;
}

void Enforcer::end(Freezing& freezing, const Result<>& result) {
  Controlled& process = *freezing.process;
  const Key key{freezing.target->holder->process, freezing.target->holder->gpu};
  for (auto& [group, added] : freezing.parts) {
    if (result) {
      group->frozen.insert(group->frozen.end(), added.begin(), added.end());
    } else {
      ledger_.end_thaw(group->entry);
      --group->begun;
    }
  }
  if (!result) return refused(key, process, result.error());
  process.refusals = 0;
  if (process.is_frozen) return;  // only its new channels
  process.is_frozen = true;
  ++process.freezes;
  changed(Change::Kind::kFreeze, key);
}

void Enforcer::set_slices(uint32_t gpu, std::span<const Target> targets) {
  struct Wrong {
    double error;
    const Target* target;
    Controlled* process;
  };
  std::vector<Wrong> wrong;
  for (const Target& target : targets) {
    Controlled& process = processes_[{target.holder->process, gpu}];
    if (!process.can_control || process.shares_group || target.slice.count() <= 0) continue;
    if (const double error = slice_error(target, process); error > 0)
      wrong.push_back({error, &target, &process});
  }
  std::ranges::sort(wrong, {}, [](const Wrong& one) { return std::pair(-one.error, one.target); });
  for (const Wrong& one : wrong) {
    if (is_behind()) return;
    const Time before = clock_.now();
    set_slices(*one.target, *one.process);
    slice_time_ -= clock_.now() - before;
  }
}

// The largest of its groups', as a logarithm of the ratio; 0: all are as they should be.
double Enforcer::slice_error(const Target& target, const Controlled& process) {
  double most = 0;
  for (const ComputeGroup& seen : target.holder->groups) {
    const auto group = std::ranges::find_if(
        process.groups, [&](const Group& known) { return is_same_group(known.ref, seen.ref); });
    const bool is_ours = group->slice && group->own_slice_count == seen.own_slice_count;
    const std::optional<Micros> now = is_ours ? group->slice : seen.own_slice;
    if (now == target.slice) continue;
    const auto from = static_cast<double>(std::max(now.value_or(kUnknownSlice), Micros(1)).count());
    most = std::max(
        {most, kLeastError, std::abs(std::log(static_cast<double>(target.slice.count()) / from))});
  }
  return most;
}

void Enforcer::set_slices(const Target& target, Controlled& process) {
  const Key key{target.holder->process, target.holder->gpu};
  bool is_changed = false;
  for (const ComputeGroup& seen : target.holder->groups) {
    Group& group = *std::ranges::find_if(
        process.groups, [&](const Group& known) { return is_same_group(known.ref, seen.ref); });
    const bool is_ours = group.slice && group.own_slice_count == seen.own_slice_count;
    if (is_ours ? *group.slice == target.slice : seen.own_slice == target.slice) continue;
    const Result<> set = set_slice(group, seen, target.slice, key.second);
    if (!set) return refused(key, process, set.error());
    process.refusals = 0;
    is_changed = true;
  }
  if (is_changed) changed(Change::Kind::kSlice, key, target.slice);
}

Result<> Enforcer::set_slice(Group& group, const ComputeGroup& seen, Micros slice, uint32_t gpu) {
  const bool chose_again = group.original && group.own_slice_count != seen.own_slice_count;
  if (chose_again) {
    // It overwrote ours, so until the note below there is nothing to restore.
    ledger_.end_slice(group.entry);
    group.original = std::nullopt;
  }
  const bool is_first = !group.original;
  if (is_first) {
    Result<Micros> original =
        seen.own_slice ? Result<Micros>(*seen.own_slice) : gpu_.slice(group.ref);
    if (!original) return std::unexpected(original.error());
    const Result<uint32_t> entry = ledger_.note_slice(ledger_key(group.ref, gpu), group.ref.fd,
                                                      static_cast<uint32_t>(original->count()));
    if (!entry) return std::unexpected(entry.error());
    group.entry = *entry;
    group.original = *original;
  }
  const Result<> set = gpu_.set_slice(group.ref, slice);
  if (set) {
    group.slice = slice;
    group.own_slice_count = seen.own_slice_count;
  } else if (is_first) {
    ledger_.end_slice(group.entry);
    group.original = std::nullopt;
  }
  return set;
}

void Enforcer::thaw(uint32_t gpu, std::span<const Key> keys) {
  const auto channels_of = [](const Controlled& process, std::vector<ChannelRef>& channels) {
    for (const Group& group : process.groups)
      for (const ChannelRef& ref : refs(group.ref.client, group.frozen)) channels.push_back(ref);
  };
  if (keys.empty()) return;
  std::vector<ChannelRef> channels;
  for (const Key& key : keys) channels_of(processes_[key], channels);
  const Result<> together = channels.empty() ? Result<>() : gpu_.thaw(gpu, channels);
  for (const Key& key : keys) {
    Controlled& process = processes_[key];
    Result<> own = process.stop_entry ? resume(key) : together;
    if (!together && keys.size() > 1 && !process.stop_entry) {
      // Thawing again what the failed call had thawed does no harm.
      channels.clear();
      channels_of(process, channels);
      own = gpu_.thaw(gpu, channels);
    }
    if (own || is_gone(own.error())) {
      thawed(key, process);
    } else {
      // Tried again by the next apply().
      const std::string note = own.error().message();
      if (note != process.note) log_error("process {} is still frozen: {}", key.first.pid, note);
      process.note = note;
    }
  }
}

void Enforcer::thawed(const Key& key, Controlled& process) {
  for (Group& group : process.groups) {
    for (; group.begun > 0; --group.begun) ledger_.end_thaw(group.entry);
    group.frozen.clear();
  }
  if (const auto entry = std::exchange(process.stop_entry, std::nullopt)) ledger_.end_thaw(*entry);
  process.is_frozen = false;
  if (process.can_control) process.note = process.shares_group ? kSharesGroup : "";
  changed(Change::Kind::kThaw, key);
}

void Enforcer::restore(Group& group) {
  if (!group.original) return;
  const Result<> restored = gpu_.set_slice(group.ref, *group.original);
  if (!restored && !is_gone(restored.error())) return;  // stays in the ledger
  ledger_.end_slice(group.entry);
  group.original = group.slice = std::nullopt;
}

void Enforcer::refused(const Key& key, Controlled& process, const Error& error) {
  if (is_gone(error)) return;  // the registry will hear of it
  if (++process.refusals < kRefusalsBelieved) return;
  only_observe(key, process, error.message());
}

void Enforcer::only_observe(const Key& key, Controlled& process, std::string note) {
  process.can_control = false;
  process.note = std::move(note);
  log_warning("process {} is only observed: {}", key.first.pid, process.note);
  if (process.is_frozen) thaw(key.second, std::span(&key, 1));
  for (Group& group : process.groups) restore(group);
}

void Enforcer::forget(const ProcessId& process, uint32_t gpu) {
  const auto at = processes_.find({process, gpu});
  if (at == processes_.end()) return;
  if (const auto entry = at->second.stop_entry) {
    // It may have lost its group alone. What cannot be resumed stays in the ledger for recovery.
    const Result<> resumed = resume(at->first);
    if (resumed || is_gone(resumed.error()))
      ledger_.clear(*entry);
    else
      log_error("process {} is still stopped: {}", process.pid, resumed.error().message());
  }
  for (const Group& group : at->second.groups) {
    ledger_.clear_group(ledger_key(group.ref, gpu));
    leave(group, at->first);
  }
  processes_.erase(at);
}

void Enforcer::undo_all() {
  std::map<uint32_t, std::vector<Key>> frozen;
  for (const auto& [key, process] : processes_)
    if (process.is_frozen) frozen[key.second].push_back(key);
  for (const auto& [gpu, keys] : frozen) thaw(gpu, keys);
  for (auto& [key, process] : processes_)
    for (Group& group : process.groups) restore(group);
}

Enforcer::State Enforcer::state(const Holder& holder) const {
  State state;
  const auto at = processes_.find({holder.process, holder.gpu});
  const Controlled* process = at == processes_.end() ? nullptr : &at->second;
  if (process != nullptr) {
    state.is_frozen = process->is_frozen;
    state.can_control = process->can_control;
    state.freezes = process->freezes;
    state.note = process->note;
  }
  if (!holder.groups.empty()) state.slice = slice(holder, holder.groups.front());
  return state;
}

std::optional<Micros> Enforcer::slice(const Holder& holder, const ComputeGroup& seen) const {
  const auto process = processes_.find({holder.process, holder.gpu});
  if (process == processes_.end()) return seen.own_slice;
  for (const Group& group : process->second.groups)
    if (is_same_group(group.ref, seen.ref) && group.slice &&
        group.own_slice_count == seen.own_slice_count)
      return group.slice;
  return seen.own_slice;
}

void Enforcer::changed(Change::Kind kind, const Key& key, Micros slice) {
  if (on_change_) on_change_({kind, clock_.now(), key.first, key.second, slice});
}

LedgerKey Enforcer::ledger_key(const GroupRef& ref, uint32_t gpu) {
  return {.pid = ref.process.pid,
          .start_ticks = ref.process.start_ticks,
          .gpu = gpu,
          .client = ref.client,
          .group = ref.group};
}

}  // namespace gpushare
