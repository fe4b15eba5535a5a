// SPDX-License-Identifier: Apache-2.0
#include "sched/step/interference.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "intercept/chosen_slice.h"
#include "sched/step/state.h"
#include "sched/step/surroundings.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

constexpr Nanos kLogPause = std::chrono::minutes(1);  // of one process's deeds to another
constexpr uid_t kNobodyKnown = static_cast<uid_t>(-1);
// Freezes of one channel beyond so many are not counted: what is left is seen with the next one.
constexpr int kMostCounted = 64;
// Programs that were there before the agent are found within this.
constexpr Nanos kStart = std::chrono::seconds(10);
// Nothing else is done for the process meanwhile. While others hold the driver's lock a thaw takes
// a tenth of a second instead of 0.26 ms.
constexpr Nanos kLongestTrial = std::chrono::milliseconds(50);
// Of one that was frozen unseen.
constexpr int kMostSuspects = 3;

}  // namespace

std::string describe(const Interference::Deed& deed) {
  if (deed.kind == Interference::Kind::kUnseenFreeze)
    return fmt::format("somebody unseen froze process {}, {} time{}{}", deed.victim.pid, deed.count,
                       deed.count == 1 ? "" : "s",
                       deed.command.empty()
                           ? ""
                           : " (these use the driver and run nothing: " + deed.command + ")");
  return fmt::format("process {} ({}, user {}) {} process {}, {} time{}", deed.culprit.pid,
                     deed.command.empty() ? "unknown" : deed.command,
                     deed.uid ? std::to_string(*deed.uid) : "unknown",
                     deed.kind == Interference::Kind::kFreeze ? "froze" : "changed the slice of",
                     deed.victim.pid, deed.count, deed.count == 1 ? "" : "s");
}

void Interference::note(const DriverEvent& event) {
  if (const auto* made = std::get_if<ChannelsSwitched>(&event.what); made && made->is_freeze) {
    std::map<uint32_t, std::optional<ProcessId>> owners;  // by client
    std::set<ProcessId> hit;
    for (const ChannelRef& channel : made->channels) {
      const auto [at, is_new] = owners.try_emplace(channel.client);
      if (is_new) at->second = registry_.owner_of(channel.client);
      const std::optional<ProcessId>& owner = at->second;
      if (!owner || *owner == event.process || !registry_.has_channel(*owner, channel)) continue;
      int& freezes = victims_[*owner].freezes[{channel.client, channel.channel}];
      freezes = std::min(freezes + 1, kMostCounted);
      hit.insert(*owner);
    }
    for (const ProcessId& victim : hit) found(Kind::kFreeze, event.process, victim);
  } else if (const auto* control = std::get_if<ControlMade>(&event.what)) {
    if (!chosen_slice(*control)) return;
    const auto owner = registry_.owner_of(control->client);
    if (!owner || *owner == event.process) return;
    auto& slices = victims_[*owner].slices;
    if (const std::pair group(control->client, control->object);
        std::ranges::find(slices, group) == slices.end())
      slices.push_back(group);
    found(Kind::kSlice, event.process, *owner);
  }
}

void Interference::found(Kind kind, const ProcessId& culprit, const ProcessId& victim) {
  ++count_;
  auto at = std::ranges::find_if(deeds_, [&](const Deed& deed) {
    return deed.kind == kind && deed.culprit == culprit && deed.victim == victim;
  });
  Deed deed{.kind = kind, .culprit = culprit, .victim = victim, .uid = {}, .command = {}};
  if (at != deeds_.end()) {
    deed = *at;
    deeds_.erase(at);
  } else if (kind == Kind::kUnseenFreeze) {
    deed.command = suspects(victim);
  } else if (const Process* process = registry_.find(culprit.pid)) {
    deed.uid = process->uid;
    deed.command = process->command;
  }
  ++deed.count;
  const Time now = clock_.now();
  const bool is_news = deed.logged_count == 0 || now - deed.logged >= kLogPause;
  if (is_news && lines_.take(deed.uid.value_or(kNobodyKnown), now)) {
    deed.logged = now;
    deed.logged_count = deed.count;
    log_about(culprit.pid, LogLevel::kWarning, "{}: it is undone", describe(deed));
  }
  if (deeds_.size() >= kMostDeeds) deeds_.erase(deeds_.begin());
  deeds_.push_back(std::move(deed));
}

Time Interference::undo() {
  const Time now = clock_.now();
  Time next = Time::max();
  for (auto at = victims_.begin(); at != victims_.end();) {
    auto& [id, victim] = *at;
    const Process* process = registry_.find(id);
    const bool is_gone = process == nullptr;
    if (!is_gone && now >= victim.next) {
      victim.next = now + kPause;
      if (may_mend(*process)) {
        thaw(*process, victim);
        put_slices_back(*process, victim);
      }
    }
    const bool is_undone = victim.freezes.empty() && victim.slices.empty();
    if (!is_gone && !is_undone) next = std::min(next, victim.next);
    const bool is_done = is_undone && now >= victim.next;
    at = is_gone || is_done ? victims_.erase(at) : std::next(at);
  }
  return next;
}

bool Interference::may_mend(const Process& process) {
  return std::ranges::all_of(process.holders, [&](const Holder& holder) {
    return enforcer_.may_mend({holder.process, holder.gpu});
  });
}

// What is frozen is not only compute: a program whose copies stand still stands still.
void Interference::thaw(const Process& process, Victim& victim) {
  std::vector<std::vector<ChannelRef>> rounds;
  while (rounds.size() < kMostThaws && !victim.freezes.empty()) {
    std::vector<ChannelRef>& channels = rounds.emplace_back();
    for (auto& [channel, freezes] : victim.freezes) {
      channels.push_back({channel.first, channel.second});
      --freezes;
    }
    std::erase_if(victim.freezes, [](const auto& entry) { return entry.second <= 0; });
  }
  if (rounds.empty()) return;
  for (const GpuInfo& info :
       gpu_.gpus().first(std::min<std::size_t>(gpu_.gpus().size(), kMaxGpus))) {
    const bool is_there = std::ranges::any_of(
        process.holders, [&](const Holder& holder) { return holder.gpu == info.index; });
    if (!is_there && gpu_.gpus().size() > 1) continue;
    enforcer_.mend({process.id, info.index}, [&gpu = gpu_, index = info.index, rounds] {
      Result<> first;
      for (const std::vector<ChannelRef>& channels : rounds)
        if (Result<> thawed = gpu.thaw(index, channels); !thawed && first) first = thawed;
      return first;
    });
  }
}

void Interference::put_slices_back(const Process& process, Victim& victim) {
  if (victim.slices.empty()) return;
  for (const Holder& holder : process.holders) {
    std::vector<std::pair<GroupRef, Micros>> due;
    for (const ComputeGroup& group : holder.groups) {
      const std::pair name(group.ref.client, group.ref.group);
      if (std::ranges::find(victim.slices, name) == victim.slices.end()) continue;
      if (const auto slice = enforcer_.slice(holder, group)) due.emplace_back(group.ref, *slice);
    }
    if (due.empty()) continue;
    enforcer_.mend({holder.process, holder.gpu}, [&gpu = gpu_, due] {
      for (const auto& [group, slice] : due) (void)gpu.set_slice(group, slice);
      return Result<>();
    });
  }
  victim.slices.clear();
}

void Interference::look_for_standstills(const State& state, const ShimProcesses* shims) {
  const Time now = clock_.now();
  if (now < next_look_ || !gpu_.support().can_freeze) return;
  next_look_ = now + Standstill::kBetweenLooks;
  for (uint32_t gpu = 0; gpu < driven_gpus(gpu_).size(); ++gpu)
    if (state.gpu_problems[gpu].empty() && !enforcer_.is_stuck(gpu))
      look_for_standstills(state, shims, gpu);
}

void Interference::look_for_standstills(const State& state, const ShimProcesses* shims,
                                        uint32_t gpu) {
  const Time now = clock_.now();
  std::vector<Standstill::Standing> all;
  for (const auto* entry : state.members_on[gpu]) {
    const auto& [key, member] = *entry;
    const Process* const process = registry_.find(key.first.pid);
    if (process == nullptr) continue;
    const Accounting::Signs signs = state.accounting[gpu].signs(key.first.pid);
    Standstill::Standing& one = all.emplace_back(Standstill::Standing{
        .process = key.first,
        .came = member.came,
        .shown = signs.shown,
        .woke = signs.woke,
        .is_held = !enforcer_.may_run({key.first, gpu}),
        .was_there = process->is_late_attach && member.came - started_ < kStart});
    if (shims == nullptr || now - std::max(one.shown, one.came) < Standstill::kBetweenLooks)
      continue;
    const auto said = shims->look(key.first);
    if (!said) continue;
    one.is_held |= said->is_at_gate || said->at_boundary.has_value();
    one.waits = said->shows_work && said->waits > 0;
  }
  const Standstill::Verdict verdict = standstills_[gpu].look(now, all);
  for (const ProcessId& victim : verdict.found) found(Kind::kUnseenFreeze, {}, victim);
  for (const Standstill::Trial& trial : verdict.trials)
    try_to_thaw({trial.process, gpu}, trial.rounds);
}

void Interference::try_to_thaw(const ControlKey& key, int rounds) {
  const std::vector<ChannelRef> channels = registry_.channels(key.first, key.second);
  if (channels.empty() || !enforcer_.may_mend(key)) return;
  struct Span {
    Time begun{}, ended{};
  };
  const auto span = std::make_shared<Span>();
  // One question for each, so that freezes go in between.
  for (int i = 0; i < rounds; ++i)
    enforcer_.mend(
        key,
        [&gpu = gpu_, &clock = clock_, index = key.second, channels, span] {
          const Time now = clock.now();
          if (span->begun == Time{}) span->begun = now;
          if (now - span->begun > kLongestTrial) return Result<>();
          (void)gpu.thaw(index, channels);  // it may have ended
          span->ended = clock.now();
          return Result<>();
        },
        [this, key, span] {
          standstills_[key.second].thawed(key.first, span->begun, span->ended);
        });
}

// Whoever froze it has the driver open, and need not have anything on a GPU.
std::string Interference::suspects(const ProcessId& victim) const {
  std::string names;
  int more = 0, named = 0;
  for (const auto& [pid, process] : registry_.processes()) {
    if (!process.holders.empty() || process.id == victim) continue;
    if (named++ >= kMostSuspects) {
      ++more;
      continue;
    }
    names += fmt::format("{}{} ({}, user {})", names.empty() ? "" : ", ", pid,
                         process.command.empty() ? "unknown" : process.command,
                         process.uid ? std::to_string(*process.uid) : "unknown");
  }
  return more == 0 ? names : fmt::format("{} and {} more", names, more);
}

std::string Interference::note_of(const ProcessId& process) const {
  const auto deed = std::ranges::find(deeds_.rbegin(), deeds_.rend(), process, &Deed::victim);
  if (deed == deeds_.rend()) return {};
  if (deed->kind == Kind::kUnseenFreeze) return "frozen by somebody unseen, undone";
  return fmt::format("{} by {} ({}), undone",
                     deed->kind == Kind::kFreeze ? "frozen" : "slice changed", deed->culprit.pid,
                     deed->command);
}

}  // namespace gpushare
