// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/enforcer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

constexpr const char* kSharesGroup =
    "an MPS client: it has its server's slice, and a freeze stops the process";
constexpr const char* kUnlisted = "too many channel groups to list: a freeze stops the process";

// Whether the group's channel with this handle is the one that was frozen.
bool has_channel(const ComputeGroup& seen, uint32_t channel, uint64_t serial) {
  const auto at = std::ranges::lower_bound(seen.channels, channel);
  return at != seen.channels.end() && *at == channel &&
         seen.serials[static_cast<std::size_t>(at - seen.channels.begin())] == serial;
}

}  // namespace

Enforcer::Enforcer(Gpu& gpu, Ledger& ledger, const Clock& clock,
                   std::function<void(const Change&)> changed)
    : gpu_(gpu),
      ledger_(ledger),
      clock_(clock),
      on_change_(std::move(changed)),
      leftovers_(gpu, ledger, clock),
      freezes_(ledger, clock),
      stops_(gpu, ledger, leftovers_, processes_),
      sharing_(gpu, clock, processes_),
      slices_(gpu, ledger, clock, leftovers_, processes_, [this](const Change& change) {
        if (on_change_) on_change_(change);
      }) {}

void Enforcer::apply(uint32_t gpu, std::span<const Target> targets) {
  for (const Target& target : targets) leave_what_is_gone(*target.holder);
  for (const Target& target : targets) meet_what_is_new(*target.holder);

  if (gpu_.support().can_freeze) freeze(gpu, targets);
  if (gpu_.support().can_set_slice) slices_.set(gpu, targets);
  std::vector<ControlKey> thawing;
  for (const Target& target : targets) {
    const ControlKey key{target.holder->process, gpu};
    if (!target.is_frozen && processes_[key].is_frozen) thawing.push_back(key);
  }
  for (const auto& [key, process] : processes_)  // no plan names them any more
    if (key.second == gpu && !process.can_control(clock_.now()) && process.is_frozen)
      thawing.push_back(key);
  thaw(gpu, thawing);
}

// Thaws what the registry has no more before it is forgotten: the registry may be wrong, and of an
// object that is really gone the freeze and the slice went with it.
void Enforcer::leave_what_is_gone(const Holder& holder) {
  const ControlKey key{holder.process, holder.gpu};
  Controlled& process = processes_[key];
  std::vector<ChannelRef> freed;
  for (ControlledGroup& group : process.groups) {
    const auto seen = std::ranges::find_if(holder.groups, [&](const ComputeGroup& candidate) {
      return candidate.ref.client == group.ref.client && candidate.ref.group == group.ref.group;
    });
    if (seen == holder.groups.end() || seen->ref.fd != group.ref.fd ||
        seen->serial != group.serial) {
      release(group, key, seen != holder.groups.end());
      group.ref.group = 0;  // marks it; no handle is 0
      continue;
    }
    for (const auto& [channel, serial] : group.frozen)
      if (serial == kDoubtful || !has_channel(*seen, channel, serial))
        freed.push_back({group.ref.client, channel});
  }
  std::erase_if(process.groups, [](const ControlledGroup& group) { return group.ref.group == 0; });
  if (freed.empty()) return;
  if (const Result<> thawed = gpu_.thaw(holder.gpu, freed); !thawed && !is_gone(thawed.error()))
    return;  // stays in `frozen`, and is tried again
  for (ControlledGroup& group : process.groups)
    std::erase_if(group.frozen, [&](const auto& one) {
      return std::ranges::find(freed, ChannelRef{group.ref.client, one.first}) != freed.end();
    });
}

void Enforcer::meet_what_is_new(const Holder& holder) {
  const ControlKey key{holder.process, holder.gpu};
  Controlled& process = processes_[key];
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
  only_observe(key, process);
}

// Undoes what was done to a group that is not followed any more. A handle that is used again is
// another group's by now: a surplus thaw does not harm it, a slice might.
void Enforcer::release(ControlledGroup& group, const ControlKey& key, bool is_handle_used_again) {
  sharing_.leave(group, key);
  if (is_handle_used_again) slices_.drop(group);
  std::vector<ChannelRef> channels;
  for (const auto& [channel, serial] : group.frozen)
    channels.push_back({group.ref.client, channel});
  const Result<> thawed = channels.empty() ? Result<>() : gpu_.thaw(key.second, channels);
  const bool is_thawed = thawed || is_gone(thawed.error());
  const LedgerKey listed = ledger_key(group.ref, key.second);
  const bool is_restored = slices_.restore(group);
  if (!is_restored || !is_thawed)
    leftovers_.add(listed);
  else if (!leftovers_.contains(listed))  // of the group that had the handle before
    ledger_.clear_group(listed);
}

void Enforcer::share(const ControlKey& key, Controlled& process) {
  process.shares_group = true;
  if (process.is_frozen) thaw(key.second, std::span(&key, 1));
  for (ControlledGroup& group : process.groups) slices_.restore(group);
  process.note = kSharesGroup;
}

void Enforcer::freeze(uint32_t gpu, std::span<const Target> targets) {
  std::vector<FreezeDeed> deeds;
  for (const Target& target : targets) {
    const ControlKey key{target.holder->process, gpu};
    Controlled& process = processes_[key];
    if (!target.is_frozen || !process.can_control(clock_.now())) continue;
    if (process.shares_group || process.stop_entry)
      stop(key, process);
    else if (std::optional<FreezeDeed> deed = begin(target, process))
      deeds.push_back(std::move(*deed));
  }
  if (deeds.empty()) return;
  carry_out(gpu_, gpu, deeds, clock_);
  for (const FreezeDeed& deed : deeds) end(deed);
}

std::optional<FreezeDeed> Enforcer::begin(const Target& target, Controlled& process) {
  if (leftovers_.has_freeze(*target.holder)) return std::nullopt;  // it is thawed first
  Freezes::Begun begun = freezes_.begin(target, process);
  if (!begun.refusal) return std::move(begun.deed);
  const ControlKey key{target.holder->process, target.holder->gpu};
  if (begun.refusal->code != std::errc::no_space_on_device) {
    refused_freeze(key, process, *begun.refusal);
    return std::nullopt;
  }
  if (process.note.empty()) log_warning("process {}: {}", key.first.pid, kUnlisted);
  process.note = kUnlisted;
  stop(key, process);
  return std::nullopt;
}

void Enforcer::end(const FreezeDeed& deed) {
  Controlled& process = processes_[deed.key];
  const bool is_news = freezes_.end(deed, process);
  if (deed.result && process.freezing.succeeded())
    log_info("process {} is controlled again", deed.key.first.pid);
  if (is_news) changed(Change::Kind::kFreeze, deed.key, deed.at);
  if (!deed.result) refused_freeze(deed.key, process, deed.result.error());
}

void Enforcer::stop(const ControlKey& key, Controlled& process) {
  if (process.stop_entry) return;
  // Channels that share() could not thaw hold everybody in the group.
  if (process.is_frozen) thaw(key.second, std::span(&key, 1));
  if (process.is_frozen) return;
  const Result<bool> stopped = stops_.stop(key, process);
  if (!stopped) return refused_freeze(key, process, stopped.error());
  if (!*stopped) return;
  process.freezing.succeeded();
  changed(Change::Kind::kFreeze, key, clock_.now());
}

void Enforcer::thaw(uint32_t gpu, std::span<const ControlKey> keys) {
  std::vector<ThawDeed> deeds;
  for (const ControlKey& key : keys)
    if (Controlled& process = processes_[key]; !process.stop_entry)
      deeds.push_back(Freezes::thaw_of(key, process));
  carry_out(gpu_, gpu, deeds, clock_);
  for (const ThawDeed& deed : deeds) end_thaw(deed.key, processes_[deed.key], deed.result);
  for (const ControlKey& key : keys)
    if (Controlled& process = processes_[key]; process.stop_entry)
      end_thaw(key, process, stops_.resume(key));
}

void Enforcer::end_thaw(const ControlKey& key, Controlled& process, const Result<>& result) {
  if (result || is_gone(result.error())) {
    freezes_.thawed(process);
    if (!process.has_unknown_class) process.note = process.shares_group ? kSharesGroup : "";
    return changed(Change::Kind::kThaw, key, clock_.now());
  }
  // Tried again by the next apply().
  Freezes::not_thawed(process);
  const std::string note = result.error().message();
  if (note != process.note) log_error("process {} is still frozen: {}", key.first.pid, note);
  process.note = note;
}

void Enforcer::refused_freeze(const ControlKey& key, Controlled& process, const Error& error) {
  if (is_gone(error)) return;  // the registry will hear of it
  const Time now = clock_.now();
  if (process.freezing.failed(now, error.message()))
    log_warning("process {} is only observed: {}", key.first.pid, process.freezing.text(now));
  if (!process.freezing.may_try(now)) only_observe(key, process);
}

void Enforcer::only_observe(const ControlKey& key, Controlled& process) {
  if (process.is_frozen) thaw(key.second, std::span(&key, 1));
  for (ControlledGroup& group : process.groups) slices_.restore(group);
}

void Enforcer::forget(const ProcessId& process, uint32_t gpu) {
  const auto at = processes_.find({process, gpu});
  if (at == processes_.end()) return;
  stops_.release(at->first, at->second);  // it may have lost its group alone
  for (ControlledGroup& group : at->second.groups)
    release(group, at->first, /*is_handle_used_again=*/false);
  processes_.erase(at);
}

void Enforcer::undo_all(uint32_t gpu) {
  std::vector<ControlKey> frozen;
  for (const auto& [key, process] : processes_)
    if (process.is_frozen && key.second == gpu) frozen.push_back(key);
  thaw(gpu, frozen);
  for (auto& [key, process] : processes_)
    if (key.second == gpu)
      for (ControlledGroup& group : process.groups) slices_.restore(group);
}

void Enforcer::undo_all() {
  for (const GpuInfo& gpu : gpu_.gpus()) undo_all(gpu.index);
}

// Resuming a process for one GPU must not let it run that is to stand still for another.
void Enforcer::undo_leftovers(const ProcReader& processes, bool at_once) {
  stops_.stop_again(leftovers_.undo(processes, at_once));
}

Enforcer::State Enforcer::state(const Holder& holder) const {
  State state;
  const auto at = processes_.find({holder.process, holder.gpu});
  const Controlled* process = at == processes_.end() ? nullptr : &at->second;
  if (process != nullptr) {
    state.is_frozen = process->is_frozen;
    const Time now = clock_.now();
    state.can_control = process->can_control(now);
    state.can_set_slice = process->slicing.may_try(now);
    state.freezes = process->freezes;
    for (const Backoff* backoff : {&process->freezing, &process->slicing})
      if (state.note.empty()) state.note = backoff->text(now);
    if (state.note.empty() || process->has_unknown_class) state.note = process->note;
  }
  if (!holder.groups.empty()) state.slice = slice_of(process, holder.groups.front());
  return state;
}

std::optional<Micros> Enforcer::slice(const Holder& holder, const ComputeGroup& seen) const {
  const auto process = processes_.find({holder.process, holder.gpu});
  return slice_of(process == processes_.end() ? nullptr : &process->second, seen);
}

void Enforcer::changed(Change::Kind kind, const ControlKey& key, Time at) {
  if (on_change_) on_change_({kind, at, key.first, key.second, Micros(0)});
}

}  // namespace gpushare
