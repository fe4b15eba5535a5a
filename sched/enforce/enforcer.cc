// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/enforcer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

constexpr const char* kSharesGroup =
    "an MPS client: it has its server's slice, and a freeze stops the process";
constexpr const char* kUnlisted = "too many channel groups to list: a freeze stops the process";

}  // namespace

Enforcer::Enforcer(Gpu& gpu, Ledger& ledger, const Clock& clock,
                   std::function<void(const Change&)> changed, const MakeDriverLine& make_line)
    : gpu_(gpu),
      ledger_(ledger),
      clock_(clock),
      on_change_(std::move(changed)),
      leftovers_(ledger, clock, [this](const LedgerKey& key) { return has_begun(key); }),
      freezes_(ledger, clock),
      stops_(gpu, ledger, leftovers_, processes_),
      sharing_(gpu, clock, processes_,
               [this](const ControlKey& key) { share(key, processes_.at(key)); }),
      slices_(ledger, clock, leftovers_, [this](const Change& change) {
        if (on_change_) on_change_(change);
      }) {
  const std::size_t driven = std::min<std::size_t>(gpu.gpus().size(), kMaxGpus);
  for (uint32_t index = 0; index < driven; ++index) lines_.push_back(make_line(gpu, index, clock));
}

void Enforcer::collect() {
  for (uint32_t gpu = 0; gpu < lines_.size(); ++gpu) collect(gpu);
}

// What is asked for by what is entered here is entered by the outermost call, when all that had
// been done before is: whoever has gone is forgotten then, and not before.
void Enforcer::collect(uint32_t gpu) {
  if (is_collecting_) return;
  is_collecting_ = true;
  DriverLine& line = *lines_[gpu];
  for (DoneDeeds done = line.take_done(); !done.is_empty(); done = line.take_done()) {
    std::set<ControlKey> over;
    for (const FreezeDeed& deed : done.freezes) {
      processes_.at(deed.key).is_switching = false;
      end(deed);
      over.insert(deed.key);
    }
    for (const ThawDeed& deed : done.thaws) {
      processes_.at(deed.key).is_switching = false;
      end_thaw(deed.key, deed.result, deed.at);
      over.insert(deed.key);
    }
    for (const SliceOrder& order : done.slices) {
      slices_.enter(order, processes_.at(order.key), line);
      over.insert(order.key);
    }
    for (const ControlKey& key : over) go_on(key);
    for (const DriverAnswer& answer : done.answers) answer();
  }
  is_collecting_ = false;
}

// What had to wait for what was under way.
void Enforcer::go_on(const ControlKey& key) {
  const auto at = processes_.find(key);
  if (at == processes_.end()) return;
  if (at->second.is_forgotten) return forget(key.first, key.second);
  if (at->second.owes_undo) undo(key.second, std::span(&key, 1));
}

void Enforcer::apply(uint32_t gpu, std::span<const Target> targets, SwitchOrder order) {
  collect(gpu);
  std::vector<FollowedTarget> free;  // of which nothing is under way
  free.reserve(targets.size());
  for (const Target& target : targets) {
    Controlled& process = processes_[{target.holder->process, gpu}];
    // It goes when what is under way has ended, and is a new one then.
    if (process.is_forgotten) continue;
    if (is_as_before(*target.holder, process) || leave_what_is_gone(target, process))
      free.push_back({target, &process});
  }
  for (const auto& [target, process] : free)
    if (!is_as_before(*target.holder, *process)) meet_what_is_new(*target.holder, *process);
  collect(gpu);
  std::erase_if(free, [&](const FollowedTarget& one) {
    const Controlled& process = *one.process;
    return process.is_switching || !Sharing::is_asked(process);
  });
  is_behind_ |= free.size() < targets.size() && !lines_[gpu]->is_stuck();

  std::vector<FreezeDeed> freezes;
  if (gpu_.support().can_freeze) freezes = begin_freezes(free);
  std::vector<ControlKey> thaws;
  for (const auto& [target, process] : free)
    if (!target.is_frozen && process->is_frozen) thaws.push_back({target.holder->process, gpu});
  for (const ControlKey& key : still_frozen_)  // no plan names them any more
    if (key.second == gpu && !processes_[key].can_control(clock_.now()) &&
        std::ranges::find(thaws, key) == thaws.end())
      thaws.push_back(key);
  switch_over(gpu, std::move(freezes), thaws, order);
  if (!gpu_.support().can_set_slice) return;
  bool has_all = slices_.set(free, *lines_[gpu]);
  collect(gpu);
  if (!has_all) has_all = slices_.set(free, *lines_[gpu]);  // of those that are known by now
  is_behind_ |= !has_all;
  collect(gpu);
}

// Asks for these freezes, which are written ahead, and for the thaws of these processes.
void Enforcer::switch_over(uint32_t gpu, std::vector<FreezeDeed> freezes,
                           std::span<const ControlKey> thaws, SwitchOrder order) {
  std::vector<ThawDeed> deeds;
  std::vector<ControlKey> stopped;
  for (const ControlKey& key : thaws) {
    Controlled& process = processes_[key];
    if (process.is_switching) continue;
    if (process.stop_entry) {
      stopped.push_back(key);
    } else {
      process.is_switching = true;
      deeds.push_back(Freezes::thaw_of(key, process));
    }
  }
  for (const FreezeDeed& deed : freezes) processes_[deed.key].is_switching = true;
  if (!freezes.empty() || !deeds.empty())
    lines_[gpu]->add({std::move(freezes), std::move(deeds), order});
  for (const ControlKey& key : stopped) end_thaw(key, stops_.resume(key), clock_.now());
  collect(gpu);
}

void Enforcer::share(const ControlKey& key, Controlled& process) {
  process.shares_group = true;
  undo(key.second, std::span(&key, 1));
  process.note = kSharesGroup;
}

std::vector<FreezeDeed> Enforcer::begin_freezes(std::span<const FollowedTarget> targets) {
  std::vector<FreezeDeed> deeds;
  for (const auto& [target, followed] : targets) {
    const ControlKey key{target.holder->process, target.holder->gpu};
    Controlled& process = *followed;
    if (!target.is_frozen || !process.can_control(clock_.now())) continue;
    if (process.shares_group || process.stop_entry)
      stop(key, process);
    else if (std::optional<FreezeDeed> deed = begin(target, process))
      deeds.push_back(std::move(*deed));
  }
  return deeds;
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
  if (process.note.empty())
    log_about(key.first.pid, LogLevel::kWarning, "process {}: {}", key.first.pid, kUnlisted);
  process.note = kUnlisted;
  stop(key, process);
  return std::nullopt;
}

void Enforcer::end(const FreezeDeed& deed) {
  Controlled& process = processes_[deed.key];
  const bool is_news = freezes_.end(deed, process);
  if (deed.result && process.freezing.succeeded())
    log_about(deed.key.first.pid, LogLevel::kInfo, "process {} is controlled again",
              deed.key.first.pid);
  if (is_news) changed(Change::Kind::kFreeze, deed.key, deed.at);
  if (!deed.result) refused_freeze(deed.key, process, deed.result.error());
}

void Enforcer::stop(const ControlKey& key, Controlled& process) {
  if (process.stop_entry) return stops_.stop_again(key);
  // Channels that share() could not thaw hold everybody in the group.
  if (process.is_frozen) switch_over(key.second, {}, std::span(&key, 1));
  is_behind_ |= process.is_switching;
  if (process.is_frozen) return;
  const Result<bool> stopped = stops_.stop(key, process);
  if (!stopped) return refused_freeze(key, process, stopped.error());
  if (!*stopped) return;
  process.freezing.succeeded();
  changed(Change::Kind::kFreeze, key, clock_.now());
}

void Enforcer::end_thaw(const ControlKey& key, const Result<>& result, Time at) {
  Controlled& process = processes_[key];
  if (has_undone(result)) {
    freezes_.thawed(process);
    still_frozen_.erase(key);
    if (!process.has_unknown_class) process.note = process.shares_group ? kSharesGroup : "";
    return changed(Change::Kind::kThaw, key, at);
  }
  // Tried again by the next apply().
  Freezes::not_thawed(process);
  still_frozen_.insert(key);
  const std::string note = result.error().message();
  if (note != process.note)
    log_about(key.first.pid, LogLevel::kError, "process {} is still frozen: {}", key.first.pid,
              note);
  process.note = note;
}

void Enforcer::refused_freeze(const ControlKey& key, Controlled& process, const Error& error) {
  if (is_gone(error)) return;  // the registry will hear of it
  const Time now = clock_.now();
  if (process.freezing.failed(now, error.message()))
    log_about(key.first.pid, LogLevel::kWarning, "process {} is only observed: {}", key.first.pid,
              process.freezing.text(now));
  if (!process.freezing.may_try(now)) undo(key.second, std::span(&key, 1));
}

// Thaws them and asks for their own slices; of whom something is under way, when that is over.
void Enforcer::undo(uint32_t gpu, std::span<const ControlKey> keys) {
  std::vector<ControlKey> frozen;
  for (const ControlKey& key : keys) {
    Controlled& process = processes_[key];
    process.owes_undo = process.is_switching;
    if (process.is_switching) continue;
    if (process.is_frozen) frozen.push_back(key);
    Slices::restore(key, process, *lines_[gpu]);
  }
  switch_over(gpu, {}, frozen);
}

void Enforcer::forget(const ProcessId& id, uint32_t gpu) {
  const auto at = processes_.find({id, gpu});
  if (at == processes_.end()) return;
  auto& [key, process] = *at;
  process.is_forgotten = true;
  if (process.is_switching) lines_[gpu]->call_off(key);
  if (process.is_switching || !lines_[gpu]->withdraw(key)) return;  // go_on() comes back
  stops_.release(key, process);  // it may have lost its group alone
  for (ControlledGroup& group : process.groups) release(group, key, /*is_handle_used_again=*/false);
  still_frozen_.erase(key);
  processes_.erase(at);
  collect(gpu);
}

bool Enforcer::may_run(const ControlKey& key) const {
  const auto at = processes_.find(key);
  return at == processes_.end() ||
         (!at->second.is_frozen && (!at->second.is_switching || at->second.mending > 0));
}

bool Enforcer::has_frozen_channels(const ControlKey& key) const {
  const auto at = processes_.find(key);
  if (at == processes_.end()) return false;
  const Controlled& process = at->second;
  return process.is_frozen && !process.shares_group && !process.stop_entry;
}

bool Enforcer::may_mend(const ControlKey& key) {
  const auto at = processes_.find(key);
  if (at == processes_.end()) return true;
  return !at->second.is_frozen && !at->second.is_switching && lines_[key.second]->withdraw(key);
}

void Enforcer::mend(const ControlKey& key, std::function<Result<>()> deed,
                    std::function<void()> then) {
  const auto followed = processes_.find(key);
  const bool is_followed = followed != processes_.end();
  if (is_followed) {
    followed->second.is_switching = true;
    ++followed->second.mending;
  }
  ask(key.second,
      [this, key, is_followed, deed = std::move(deed), then = std::move(then)]() -> DriverAnswer {
        return [this, key, is_followed, then, result = deed()] {
          if (then) then();
          if (!has_undone(result))
            log_about(key.first.pid, LogLevel::kError, "process {} was frozen by another: {}",
                      key.first.pid, result.error().message());
          if (!is_followed) return;
          Controlled& process = processes_.at(key);  // it is not forgotten meanwhile
          if (--process.mending > 0) return;
          process.is_switching = false;
          go_on(key);
        };
      });
}

void Enforcer::undo_all(uint32_t gpu) {
  std::vector<ControlKey> keys;
  for (const auto& [key, process] : processes_)
    if (key.second == gpu) keys.push_back(key);
  undo(gpu, keys);
}

// Twice: the second time for what was under way at first, and for thaws that have failed.
void Enforcer::undo_all() {
  for (uint32_t gpu = 0; gpu < lines_.size(); ++gpu) undo_all(gpu);
  std::vector<bool> is_second(lines_.size());
  const std::vector<uint32_t> late = settle(kPatience, [&](uint32_t gpu) {
    if (is_second[gpu]) return false;
    is_second[gpu] = true;
    undo_all(gpu);
    return true;
  });
  for (const uint32_t gpu : late)
    log_error("GPU {} does not answer: what is done there is left to recovery", gpu);
}

// Waits until each line rests, however late the others are, and enters what it has done.
// `goes_on`: it has asked for more. Returns the GPUs that are given up: they are stuck, or the time
// is over.
std::vector<uint32_t> Enforcer::settle(Nanos patience,
                                       const std::function<bool(uint32_t gpu)>& goes_on) {
  constexpr Nanos kGlance = std::chrono::milliseconds(1);
  const MonotonicClock clock;  // the machine's time, also where ours is a simulation's
  const Time until = clock.now() + patience;
  std::vector<uint32_t> waited(lines_.size()), late;
  std::iota(waited.begin(), waited.end(), 0);
  while (!waited.empty()) {
    std::erase_if(waited, [&](uint32_t gpu) {
      const bool rests = lines_[gpu]->wait(kGlance);
      collect(gpu);
      if (rests) return !goes_on(gpu);
      if (!lines_[gpu]->is_stuck() && clock.now() < until) return false;
      late.push_back(gpu);
      return true;
    });
  }
  return late;
}

bool Enforcer::rest(Nanos patience) {
  return settle(patience, [](uint32_t) { return false; }).empty();
}

Enforcer::State Enforcer::brief(const Holder& holder) const { return brief(holder, find(holder)); }

Enforcer::State Enforcer::brief(const Holder& holder, const Controlled* process) const {
  State state;
  if (process != nullptr) {
    state.is_frozen = process->is_frozen;
    state.can_control = process->can_control(clock_);
    state.freezes = process->freezes;
  }
  if (!holder.groups.empty()) state.slice = slice_of(process, holder.groups.front());
  return state;
}

Enforcer::State Enforcer::state(const Holder& holder) const {
  const Controlled* const process = find(holder);
  State state = brief(holder, process);
  if (process == nullptr) return state;
  state.can_set_slice = process->slicing.may_try(clock_);
  for (const Backoff* backoff : {&process->freezing, &process->slicing})
    if (state.note.empty() && !backoff->may_try(clock_)) state.note = backoff->text(clock_.now());
  if (state.note.empty() || process->has_unknown_class) state.note = process->note;
  return state;
}

bool Enforcer::shares_group(const Holder& holder) const {
  const Controlled* const process = find(holder);
  return process != nullptr && process->shares_group;
}

std::optional<Micros> Enforcer::slice(const Holder& holder, const ComputeGroup& seen) const {
  return slice_of(find(holder), seen);
}

const Controlled* Enforcer::find(const Holder& holder) const {
  const auto at = processes_.find({holder.process, holder.gpu});
  return at == processes_.end() ? nullptr : &at->second;
}

void Enforcer::changed(Change::Kind kind, const ControlKey& key, Time at) {
  if (on_change_) on_change_({kind, at, key.first, key.second, Micros(0)});
}

}  // namespace gpushare
