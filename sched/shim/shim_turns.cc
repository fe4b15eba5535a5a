// SPDX-License-Identifier: Apache-2.0
#include "sched/shim/shim_turns.h"

#include <algorithm>
#include <utility>

namespace gpushare {
namespace {

constexpr Nanos kTurn = std::chrono::milliseconds(10);

}  // namespace

Time ShimTurns::step(Time now, std::span<const Client> clients) {
  std::map<Key, std::vector<const Client*>> sets;
  for (const Client& client : clients) sets[{client.gpu, client.set}].push_back(&client);
  shut_.clear();
  heard_.clear();
  auto before = std::exchange(turns_, {});
  Time next = Time::max();
  for (const auto& [key, members] : sets) {
    Priority highest = Priority::kIdle;
    for (const Client* one : members) {
      Nanos longest{};  // launch of one that has to give way to it
      for (const Client* other : members)
        if (other->priority < one->priority) longest = std::max(longest, 2 * other->runs_on);
      const bool is_soon = comes_back_soon(*one, longest);
      if (one->is_at_work || is_soon) highest = std::max(highest, one->priority);
      if (is_soon) next = std::min(next, now + 2 * one->rests - one->rested);
    }
    std::vector<const Client*> contenders;
    for (const Client* one : members) {
      if (one->priority < highest) {
        shut_.insert(one->process);
        if (one->is_busy) next = std::min(next, now + kLook);
      } else if (one->is_busy && one->priority == highest) {
        contenders.push_back(one);
      }
      const bool is_above = std::ranges::any_of(
          members, [&](const Client* other) { return other->priority < one->priority; });
      if (is_above) heard_.insert(one->process);
    }
    turns_.insert(before.extract(key));
    next = std::min(next, divide(now, key, contenders));
    const bool may_differ = std::ranges::any_of(
        members, [&](const Client* one) { return one->weight != members.front()->weight; });
    if (may_differ && !contenders.empty()) next = std::min(next, now + kTurn);
  }
  return next;
}

// A tenant that comes has had as much as the one that has had least, and so has one that was away.
Time ShimTurns::divide(Time now, const Key& key, std::span<const Client* const> contenders) {
  std::map<uint32_t, uint32_t> weights;  // by tenant
  std::map<uint32_t, Nanos> runs_on;
  bool have_targets = false;
  for (const Client* one : contenders) {
    weights[one->tenant] = one->weight;
    runs_on[one->tenant] = std::max(runs_on[one->tenant], one->runs_on);
    have_targets = have_targets || one->has_target;
  }
  const bool are_equal = std::ranges::all_of(
      weights, [&](const auto& entry) { return entry.second == weights.begin()->second; });
  if (weights.size() < 2 || are_equal || have_targets) {
    turns_.erase(key);
    return Time::max();
  }
  Turns& turns = turns_[key];
  const auto charge = [&](Nanos time) {
    if (const auto own = weights.find(turns.holder); own != weights.end())
      turns.had[turns.holder] += static_cast<double>(time.count()) / own->second;
  };
  // Of a standstill of the agent, or of the machine, nobody knows who launched in it.
  if (turns.is_held) charge(std::min(now - turns.charged, 2 * kTurn));
  turns.charged = now;
  std::erase_if(turns.had, [&](const auto& entry) { return !weights.contains(entry.first); });
  double least = -1;
  for (const auto& [tenant, had] : turns.had) least = least < 0 ? had : std::min(least, had);
  for (const auto& entry : weights) turns.had.try_emplace(entry.first, std::max(least, 0.0));
  if (!turns.is_held || !weights.contains(turns.holder) || now >= turns.ends) {
    const uint32_t before = turns.holder;
    const auto next = std::ranges::min_element(
        turns.had, {}, [](const auto& entry) { return std::pair(entry.second, entry.first); });
    if (turns.is_held && next->first != before) charge(runs_on[before]);
    turns.holder = next->first;
    turns.is_held = true;
    turns.ends = now + kTurn;
  }
  for (const Client* one : contenders)
    if (one->tenant != turns.holder) shut_.insert(one->process);
  return turns.ends;
}

}  // namespace gpushare
