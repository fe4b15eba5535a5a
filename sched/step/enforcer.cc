// SPDX-License-Identifier: Apache-2.0
#include "sched/step/enforcer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sched/step/recovery.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

// What CUDA programs choose at their start; for a group whose slice nobody has seen.
constexpr Micros kUnknownSlice{2048};
constexpr double kLeastError = 1e-9;
constexpr const char* kSharesGroup =
    "an MPS client: it has its server's slice, and a freeze stops the process";
constexpr const char* kUnlisted = "too many channel groups to list: a freeze stops the process";
// What the driver did not know (a group's hardware number, a channel) is asked for again after
// this.
constexpr Nanos kAskAgain = std::chrono::seconds(1);
// An MPS server takes the next client at any time, so one that is alone stays a client for a while.
constexpr Nanos kAloneForGood = std::chrono::seconds(10);

bool is_gone(const Error& error) { return error.code == std::errc::no_such_process; }

bool is_same_group(const GroupRef& a, const GroupRef& b) {
  return a.client == b.client && a.group == b.group;
}

// 0: the channel is not there.
uint64_t serial_of(const ComputeGroup& group, uint32_t channel) {
  const auto at = std::ranges::lower_bound(group.channels, channel);
  if (at == group.channels.end() || *at != channel) return 0;
  return group.serials[static_cast<std::size_t>(at - group.channels.begin())];
}

}  // namespace

Enforcer::Enforcer(Gpu& gpu, Ledger& ledger, const Clock& clock,
                   std::function<void(const Change&)> changed)
    : gpu_(gpu), ledger_(ledger), clock_(clock), on_change_(std::move(changed)) {
  for (const LedgerKey& key : ledger_.groups()) leftovers_.insert(key);
}

void Enforcer::apply(uint32_t gpu, std::span<const Target> targets) {
  for (const Target& target : targets) leave_what_is_gone(*target.holder);
  for (const Target& target : targets) meet_what_is_new(*target.holder);

  if (gpu_.support().can_freeze) freeze(gpu, targets);
  if (gpu_.support().can_set_slice) set_slices(gpu, targets);
  std::vector<Key> thawing;
  for (const Target& target : targets) {
    const Key key{target.holder->process, gpu};
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
  const Key key{holder.process, holder.gpu};
  Controlled& process = processes_[key];
  std::vector<ChannelRef> freed;
  for (Group& group : process.groups) {
    const auto seen = std::ranges::find_if(holder.groups, [&](const ComputeGroup& candidate) {
      return is_same_group(candidate.ref, group.ref);
    });
    if (seen == holder.groups.end() || seen->ref.fd != group.ref.fd ||
        seen->serial != group.serial) {
      release(group, key, seen != holder.groups.end());
      group.ref.group = 0;  // marks it; no handle is 0
      continue;
    }
    for (const auto& [channel, serial] : group.frozen)
      if (serial_of(*seen, channel) != serial) freed.push_back({group.ref.client, channel});
  }
  std::erase_if(process.groups, [](const Group& group) { return group.ref.group == 0; });
  if (freed.empty()) return;
  if (const Result<> thawed = gpu_.thaw(holder.gpu, freed); !thawed && !is_gone(thawed.error()))
    return;  // stays in `frozen`, and is tried again
  for (Group& group : process.groups)
    std::erase_if(group.frozen, [&](const auto& one) {
      return std::ranges::find(freed, ChannelRef{group.ref.client, one.first}) != freed.end();
    });
}

void Enforcer::meet_what_is_new(const Holder& holder) {
  const Key key{holder.process, holder.gpu};
  Controlled& process = processes_[key];
  for (const ComputeGroup& seen : holder.groups) {
    const bool is_known = std::ranges::any_of(
        process.groups, [&](const Group& group) { return is_same_group(group.ref, seen.ref); });
    if (is_known) continue;
    process.groups.push_back({});
    process.groups.back().ref = seen.ref;
    process.groups.back().serial = seen.serial;
  }
  for (Group& group : process.groups)
    if (!group.hardware && clock_.now() >= group.ask_at) join(group, key);
  look_at_sharing(key, process);
  look_at_classes(key, process, holder);
  const bool is_changed = std::exchange(process.generation, holder.generation) != holder.generation;
  for (Group& group : process.groups)
    if (is_changed || clock_.now() >= group.gone_until) group.gone.clear();
}

void Enforcer::look_at_classes(const Key& key, Controlled& process, const Holder& holder) {
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
void Enforcer::release(Group& group, const Key& key, bool is_handle_used_again) {
  leave(group, key);
  if (is_handle_used_again && group.original) {
    ledger_.end_slice(group.entry);
    group.original = std::nullopt;
  }
  std::vector<ChannelRef> channels;
  add_refs(group, group.frozen, channels);
  const Result<> thawed = channels.empty() ? Result<>() : gpu_.thaw(key.second, channels);
  const bool is_thawed = thawed || is_gone(thawed.error());
  const LedgerKey listed = ledger_key(group.ref, key.second);
  const bool is_restored = restore(group);
  if (!is_restored || !is_thawed)
    leave_over(listed);
  else if (!leftovers_.contains(listed))  // of the group that had the handle before
    ledger_.clear_group(listed);
}

void Enforcer::leave_over(const LedgerKey& key) {
  leftovers_.insert(key);
  undoing_ = {};  // the new one is tried soon
}

void Enforcer::undo_leftovers(const ProcReader& processes, bool at_once) {
  const Time now = clock_.now();
  if (leftovers_.empty() || (!at_once && !undoing_.may_try(now))) return;
  const RecoveryReport report = recover(gpu_, ledger_, processes, leftovers_);
  // Resuming a process for one GPU must not let it run that is to stand still for another.
  for (const auto& [key, process] : processes_)
    if (process.stop_entry && std::ranges::find(report.thawed, key.first) != report.thawed.end())
      (void)gpu_.stop(key.first);
  const std::vector<LedgerKey> listed = ledger_.groups();
  std::erase_if(leftovers_,
                [&](const LedgerKey& key) { return !std::ranges::binary_search(listed, key); });
  if (report.errors.empty()) {
    undoing_.succeeded();
  } else if (undoing_.failed(now, report.errors.front())) {
    for (const std::string& error : report.errors) log_error("not undone yet: {}", error);
  }
}

bool Enforcer::has_leftover_freeze(const Holder& holder) const {
  if (leftovers_.empty()) return false;
  return std::ranges::any_of(holder.groups, [&](const ComputeGroup& group) {
    const LedgerKey key = ledger_key(group.ref, holder.gpu);
    return leftovers_.contains(key) && ledger_.freezes(key) > 0;
  });
}

std::optional<uint32_t> Enforcer::ask_number(Group& group) {
  const Result<uint32_t> number = gpu_.hardware_group(group.ref);
  if (number) return *number;
  const bool is_known = number.error().code != std::errc::not_supported;
  group.ask_at = is_known ? clock_.now() + kAskAgain : Time::max();
  return std::nullopt;
}

void Enforcer::join(Group& group, const Key& key) {
  group.hardware = ask_number(group);
  if (!group.hardware) return;
  const uint32_t number = *group.hardware;
  sharers_[{key.second, number}].insert(key);
  check_sharers(key, number);
  const std::set<Key> sharers = sharers_[{key.second, number}];
  if (sharers.size() < 2) return;
  for (const Key& sharer : sharers) {
    Controlled& process = processes_[sharer];
    process.shared_last = clock_.now();
    if (!process.shares_group) share(sharer, process);
  }
}

// Hardware uses a number again. So whoever is thought to have it, too, is asked for it now: a
// process whose groups were freed may not be followed yet.
void Enforcer::check_sharers(const Key& key, uint32_t number) {
  std::erase_if(sharers_[{key.second, number}], [&](const Key& other) {
    if (other == key) return false;
    bool has_number = false;
    for (Group& group : processes_[other].groups) {
      if (group.hardware != number) continue;
      group.hardware.reset();
      group.ask_at = Time{};
      if (ask_number(group) == number) group.hardware = number;
      has_number |= group.hardware.has_value();
    }
    return !has_number;
  });
}

void Enforcer::look_at_sharing(const Key& key, Controlled& process) {
  if (!process.shares_group) return;
  const bool shares_now = std::ranges::any_of(process.groups, [&](const Group& group) {
    return group.hardware && sharers_[{key.second, *group.hardware}].size() > 1;
  });
  if (shares_now) process.shared_last = clock_.now();
  if (shares_now || process.stop_entry || clock_.now() - process.shared_last < kAloneForGood)
    return;
  process.shares_group = false;
  process.note.clear();
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
  if (leftovers_.contains(own)) return;  // it is resumed first
  const Result<uint32_t> entry = ledger_.begin_freeze(own, -1, {});
  if (!entry) return refused_freeze(key, process, entry.error());
  if (const Result<> stopped = gpu_.stop(key.first); !stopped) {
    // The signal may have been sent: a surplus one is harmless.
    if (const Result<> resumed = resume(key); resumed || is_gone(resumed.error()))
      ledger_.end_thaw(*entry);
    else
      leave_over(own);
    return refused_freeze(key, process, stopped.error());
  }
  process.freezing.succeeded();
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
    if (!target.is_frozen || !process.can_control(clock_.now())) continue;
    if (process.shares_group || process.stop_entry) {
      stop({target.holder->process, gpu}, process);
      continue;
    }
    std::optional<Freezing> freezing = begin(target, process);
    if (!freezing) continue;
    for (const auto& [group, added] : freezing->parts) add_refs(*group, added, channels);
    list.push_back(std::move(*freezing));
  }
  if (list.empty()) return;

  const Result<> together = channels.empty() ? Result<>() : gpu_.freeze(gpu, channels);
  const bool may_retry = !together && is_thawed(gpu, channels);
  for (Freezing& freezing : list) {
    Result<> own = together;
    const std::vector<ChannelRef> only = refs(freezing);
    if (may_retry && list.size() > 1) own = only.empty() ? Result<>() : gpu_.freeze(gpu, only);
    if (may_retry && !own && is_gone(own.error()) && is_thawed(gpu, only))
      own = freeze_each(freezing);
    end(freezing, own);
  }
}

void Enforcer::add_refs(const Group& group, const Channels& channels, std::vector<ChannelRef>& to) {
  for (const auto& [channel, serial] : channels) to.push_back({group.ref.client, channel});
}

std::vector<ChannelRef> Enforcer::refs(const Freezing& freezing) {
  std::vector<ChannelRef> channels;
  for (const auto& [group, added] : freezing.parts) add_refs(*group, added, channels);
  return channels;
}

// After a freeze that failed, of channels that were not frozen before: it may have frozen a part,
// and a second freeze would need a second thaw. A surplus thaw is harmless.
bool Enforcer::is_thawed(uint32_t gpu, std::span<const ChannelRef> channels) {
  const Result<> thawed = channels.empty() ? Result<>() : gpu_.thaw(gpu, channels);
  return thawed || is_gone(thawed.error());
}

// Finds what is not frozen yet and writes it ahead. nullopt: nothing to do, or it cannot be done.
std::optional<Enforcer::Freezing> Enforcer::begin(const Target& target, Controlled& process) {
  Freezing freezing{.target = &target, .process = &process, .parts = {}};
  const Key key{target.holder->process, target.holder->gpu};
  if (has_leftover_freeze(*target.holder)) return std::nullopt;  // it is thawed first
  for (const ComputeGroup& seen : target.holder->groups) {
    Group& group = *std::ranges::find_if(
        process.groups, [&](const Group& known) { return is_same_group(known.ref, seen.ref); });
    std::vector<uint32_t> named;
    std::ranges::copy_if(seen.channels, std::back_inserter(named), [&](uint32_t channel) {
      return !group.frozen.contains(channel) &&
             std::ranges::find(group.gone, channel) == group.gone.end();
    });
    if (named.empty()) continue;
    Channels added;
    for (const uint32_t channel : named) added[channel] = serial_of(seen, channel);
    const Result<uint32_t> entry =
        ledger_.begin_freeze(ledger_key(group.ref, key.second), group.ref.fd, named);
    if (!entry) {
      for (const auto& [begun, unused] : freezing.parts) {
        ledger_.end_thaw(begun->entry);
        --begun->begun;
      }
      if (entry.error().code != std::errc::no_space_on_device) {
        refused_freeze(key, process, entry.error());
        return std::nullopt;
      }
      if (process.note.empty()) log_warning("process {}: {}", key.first.pid, kUnlisted);
      process.note = kUnlisted;
      stop(key, process);
      return std::nullopt;
    }
    group.entry = *entry;
    ++group.begun;
    freezing.parts.emplace_back(&group, std::move(added));
  }
  if (freezing.parts.empty() && process.is_frozen) return std::nullopt;
  return freezing;
}

// The driver refuses a list in which a channel is gone. A process that frees channels all the time,
// or whose freeing of one was not seen, must be frozen all the same.
Result<> Enforcer::freeze_each(Freezing& freezing) {
  bool has_frozen = false;
  std::optional<Error> refusal;
  for (auto& [group, added] : freezing.parts) {
    std::erase_if(added, [&](const auto& one) {
      if (refusal) return false;
      const ChannelRef ref{group->ref.client, one.first};
      const Result<> frozen = gpu_.freeze(freezing.target->holder->gpu, std::span(&ref, 1));
      has_frozen |= frozen.has_value();
      if (frozen) return false;
      if (!is_gone(frozen.error())) {
        refusal = frozen.error();
        return false;
      }
      group->gone.push_back(one.first);
      group->gone_until = clock_.now() + kAskAgain;
      return true;
    });
  }
  if (refusal) return std::unexpected(*refusal);
  if (has_frozen) return {};
  return make_error(std::errc::no_such_process, "freeze channels");
}

void Enforcer::take_back(Group& group, const Channels& channels, uint32_t gpu) {
  std::vector<ChannelRef> list;
  add_refs(group, channels, list);
  if (is_thawed(gpu, list)) {
    ledger_.end_thaw(group.entry);
    --group.begun;
  } else {
    for (const auto& [channel, serial] : channels) group.frozen[channel] = kDoubtful;
  }
}

void Enforcer::end(Freezing& freezing, const Result<>& result) {
  Controlled& process = *freezing.process;
  const Key key{freezing.target->holder->process, freezing.target->holder->gpu};
  for (auto& [group, added] : freezing.parts) {
    if (result)
      group->frozen.insert(added.begin(), added.end());
    else
      take_back(*group, added, key.second);
  }
  if (!result) {
    const bool may_be_frozen =
        std::ranges::any_of(process.groups, [](const Group& group) { return group.begun > 0; });
    if (may_be_frozen && !std::exchange(process.is_frozen, true))
      changed(Change::Kind::kFreeze, key);
    return refused_freeze(key, process, result.error());
  }
  if (process.freezing.succeeded()) log_info("process {} is controlled again", key.first.pid);
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
    const Time now = clock_.now();
    if (!process.can_control(now) || !process.slicing.may_try(now) || process.shares_group ||
        target.slice.count() <= 0)
      continue;
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
    if (leftovers_.contains(ledger_key(group.ref, key.second))) continue;
    const Result<> set = set_slice(group, seen, target.slice, key.second);
    if (!set && is_gone(set.error())) continue;  // the registry will hear of it
    if (!set) {
      refused_slice(key, process, set.error());
      break;
    }
    process.slicing.succeeded();
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
    for (const Group& group : process.groups) add_refs(group, group.frozen, channels);
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
      // Tried again by the next apply(). It may have thawed a part.
      for (Group& group : process.groups)
        for (auto& [channel, serial] : group.frozen) serial = kDoubtful;
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
  if (!process.has_unknown_class) process.note = process.shares_group ? kSharesGroup : "";
  changed(Change::Kind::kThaw, key);
}

// Returns false when it stays in the ledger.
bool Enforcer::restore(Group& group) {
  if (!group.original) return true;
  const Result<> restored = gpu_.set_slice(group.ref, *group.original);
  if (!restored && !is_gone(restored.error())) return false;
  ledger_.end_slice(group.entry);
  group.original = group.slice = std::nullopt;
  return true;
}

void Enforcer::refused_freeze(const Key& key, Controlled& process, const Error& error) {
  if (is_gone(error)) return;  // the registry will hear of it
  const Time now = clock_.now();
  if (process.freezing.failed(now, error.message()))
    log_warning("process {} is only observed: {}", key.first.pid, process.freezing.text(now));
  if (!process.freezing.may_try(now)) only_observe(key, process);
}

// Its freezes go on: a process can make its slices refuse, and must not escape its cap by that.
void Enforcer::refused_slice(const Key& key, Controlled& process, const Error& error) {
  const Time now = clock_.now();
  if (process.slicing.failed(now, error.message()))
    log_warning("process {} keeps its slices: {}", key.first.pid, process.slicing.text(now));
  if (process.slicing.may_try(now)) return;
  for (Group& group : process.groups) restore(group);
}

void Enforcer::only_observe(const Key& key, Controlled& process) {
  if (process.is_frozen) thaw(key.second, std::span(&key, 1));
  for (Group& group : process.groups) restore(group);
}

void Enforcer::forget(const ProcessId& process, uint32_t gpu) {
  const auto at = processes_.find({process, gpu});
  if (at == processes_.end()) return;
  if (const auto entry = at->second.stop_entry) {
    // It may have lost its group alone.
    const Result<> resumed = resume(at->first);
    if (resumed || is_gone(resumed.error())) {
      ledger_.clear(*entry);
    } else {
      log_error("process {} is still stopped: {}", process.pid, resumed.error().message());
      leave_over({.pid = process.pid, .start_ticks = process.start_ticks, .gpu = gpu});
    }
  }
  for (Group& group : at->second.groups) release(group, at->first, /*is_handle_used_again=*/false);
  processes_.erase(at);
}

void Enforcer::undo_all(uint32_t gpu) {
  std::vector<Key> frozen;
  for (const auto& [key, process] : processes_)
    if (process.is_frozen && key.second == gpu) frozen.push_back(key);
  thaw(gpu, frozen);
  for (auto& [key, process] : processes_)
    if (key.second == gpu)
      for (Group& group : process.groups) restore(group);
}

void Enforcer::undo_all() {
  for (const GpuInfo& gpu : gpu_.gpus()) undo_all(gpu.index);
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
