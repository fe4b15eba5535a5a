// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/slices.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

// What CUDA programs choose at their start; for a group whose slice nobody has seen.
constexpr Micros kUnknownSlice{2048};
constexpr double kLeastError = 1e-9;

// The largest of its groups', as a logarithm of the ratio; 0: all are as they should be.
double slice_error(const ControlTarget& target, const Controlled& process) {
  double most = 0;
  for (const ComputeGroup& seen : target.holder->groups) {
    const std::optional<Micros> now = slice_of(&process, seen);
    if (now == target.slice) continue;
    const auto from = static_cast<double>(std::max(now.value_or(kUnknownSlice), Micros(1)).count());
    most = std::max(
        {most, kLeastError, std::abs(std::log(static_cast<double>(target.slice.count()) / from))});
  }
  return most;
}

}  // namespace

std::optional<Micros> slice_of(const Controlled* process, const ComputeGroup& seen) {
  const ControlledGroup* group = process == nullptr ? nullptr : process->find(seen.ref);
  const bool is_ours =
      group != nullptr && group->slice && group->own_slice_count == seen.own_slice_count;
  return is_ours ? group->slice : seen.own_slice;
}

Slices::Slices(Ledger& ledger, const Clock& clock, const Leftovers& leftovers,
               std::function<void(const ControlChange&)> changed)
    : ledger_(ledger), clock_(clock), leftovers_(leftovers), changed_(std::move(changed)) {}

bool Slices::set(std::span<const FollowedTarget> targets, DriverLine& line) {
  struct Wrong {
    double error;
    const FollowedTarget* target;
  };
  std::vector<Wrong> wrong;
  const Time now = clock_.now();
  for (const FollowedTarget& one : targets) {
    const auto& [target, process] = one;
    if (!process->can_control(now) || !process->slicing.may_try(now) || process->shares_group ||
        target.slice.count() <= 0)
      continue;
    if (const double error = slice_error(target, *process); error > 0)
      wrong.push_back({error, &one});
  }
  std::ranges::sort(wrong, {}, [](const Wrong& one) { return std::pair(-one.error, one.target); });
  std::vector<SliceOrder> orders;
  for (const Wrong& one : wrong) order(one.target->target, *one.target->process, orders, line);
  const bool has_all = std::ranges::none_of(
      orders, [](const SliceOrder& one) { return one.kind == SliceOrder::Kind::kRead; });
  line.set(std::move(orders));
  return has_all;
}

void Slices::order(const ControlTarget& target, Controlled& process,
                   std::vector<SliceOrder>& orders, DriverLine& line) {
  const ControlKey key{target.holder->process, target.holder->gpu};
  for (const ComputeGroup& seen : target.holder->groups) {
    if (slice_of(&process, seen) == target.slice) continue;
    ControlledGroup& group = *process.find(seen.ref);
    if (group.is_restoring || leftovers_.concerns(group.ref, key.second)) continue;
    const bool chose_again = group.original && group.own_slice_count != seen.own_slice_count;
    if (chose_again) drop(group);  // it overwrote ours: nothing is to be restored until the note
    SliceOrder order{.kind = SliceOrder::Kind::kSet,
                     .key = key,
                     .ref = group.ref,
                     .own_slice_count = seen.own_slice_count,
                     .slice = target.slice};
    if (!group.original && !seen.own_slice) {
      order.kind = SliceOrder::Kind::kRead;
    } else if (!group.original && !note(group, *seen.own_slice, key, process, line)) {
      std::erase_if(orders, [&](const SliceOrder& one) { return one.key == key; });
      return;  // they may be restored by now
    }
    orders.push_back(std::move(order));
  }
}

bool Slices::note(ControlledGroup& group, Micros original, const ControlKey& key,
                  Controlled& process, DriverLine& line) {
  const Result<uint32_t> entry = ledger_.note_slice(ledger_key(group.ref, key.second), group.ref.fd,
                                                    static_cast<uint32_t>(original.count()));
  if (!entry) {
    refused(key, process, entry.error(), line);
    return false;
  }
  group.entry = *entry;
  group.original = original;
  return true;
}

void Slices::enter(const SliceOrder& order, Controlled& process, DriverLine& line) {
  ControlledGroup* const group = process.find(order.ref);
  if (group == nullptr) return;
  const bool has_gone = !order.result && is_gone(order.result.error());
  switch (order.kind) {
    case SliceOrder::Kind::kRestore:
      group->is_restoring = false;
      if (!order.result && !has_gone) return;
      drop(*group);
      group->slice = std::nullopt;
      return;
    case SliceOrder::Kind::kRead:
      if (!order.result && !has_gone) refused(order.key, process, order.result.error(), line);
      if (order.result && !group->original) note(*group, order.slice, order.key, process, line);
      return;
    case SliceOrder::Kind::kSet:
      break;
  }
  const bool is_first = !group->slice || group->own_slice_count != order.own_slice_count;
  if (!order.result) {
    if (is_first) drop(*group);
    if (!has_gone) refused(order.key, process, order.result.error(), line);
    return;  // of what is gone the registry will hear
  }
  group->slice = order.slice;
  group->own_slice_count = order.own_slice_count;
  process.slicing.succeeded();
  changed_({ControlChange::Kind::kSlice, order.at, order.key.first, order.key.second, order.slice});
}

void Slices::restore(const ControlKey& key, Controlled& process, DriverLine& line) {
  (void)line.withdraw(key);  // one that is being set is done before it is restored
  std::vector<SliceOrder> orders;
  for (ControlledGroup& group : process.groups) {
    if (!group.original || group.is_restoring) continue;
    group.is_restoring = true;
    orders.push_back({.kind = SliceOrder::Kind::kRestore,
                      .key = key,
                      .ref = group.ref,
                      .slice = *group.original});
  }
  if (!orders.empty()) line.restore(std::move(orders));
}

void Slices::drop(ControlledGroup& group) {
  if (!group.original) return;
  ledger_.end_slice(group.entry);
  group.original = std::nullopt;
}

// Its freezes go on: a process can make its slices refuse, and must not escape its cap by that.
void Slices::refused(const ControlKey& key, Controlled& process, const Error& error,
                     DriverLine& line) {
  const Time now = clock_.now();
  if (process.slicing.failed(now, error.message()))
    log_about(key.first.pid, LogLevel::kWarning, "process {} keeps its slices: {}", key.first.pid,
              process.slicing.text(now));
  if (!process.slicing.may_try(now)) restore(key, process, line);
}

}  // namespace gpushare
