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

Slices::Slices(Gpu& gpu, Ledger& ledger, const Clock& clock, const Leftovers& leftovers,
               AllControlled& all, std::function<void(const ControlChange&)> changed)
    : gpu_(gpu),
      ledger_(ledger),
      clock_(clock),
      leftovers_(leftovers),
      all_(all),
      changed_(std::move(changed)) {}

void Slices::set(uint32_t gpu, std::span<const ControlTarget> targets) {
  struct Wrong {
    double error;
    const ControlTarget* target;
    Controlled* process;
  };
  std::vector<Wrong> wrong;
  for (const ControlTarget& target : targets) {
    Controlled& process = all_[{target.holder->process, gpu}];
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
    set(*one.target, *one.process);
    left_ -= clock_.now() - before;
  }
}

void Slices::set(const ControlTarget& target, Controlled& process) {
  const ControlKey key{target.holder->process, target.holder->gpu};
  bool is_changed = false;
  for (const ComputeGroup& seen : target.holder->groups) {
    if (slice_of(&process, seen) == target.slice) continue;
    ControlledGroup& group = *process.find(seen.ref);
    if (leftovers_.contains(ledger_key(group.ref, key.second))) continue;
    const Result<> done = set(group, seen, target.slice, key.second);
    if (!done && is_gone(done.error())) continue;  // the registry will hear of it
    if (!done) {
      refused(key, process, done.error());
      break;
    }
    process.slicing.succeeded();
    is_changed = true;
  }
  if (is_changed)
    changed_({ControlChange::Kind::kSlice, clock_.now(), key.first, key.second, target.slice});
}

Result<> Slices::set(ControlledGroup& group, const ComputeGroup& seen, Micros slice, uint32_t gpu) {
  const bool chose_again = group.original && group.own_slice_count != seen.own_slice_count;
  if (chose_again)
    drop(group);  // it overwrote ours: until the note below nothing is to be restored
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
    drop(group);
  }
  return set;
}

bool Slices::restore(ControlledGroup& group) {
  if (!group.original) return true;
  const Result<> restored = gpu_.set_slice(group.ref, *group.original);
  if (!restored && !is_gone(restored.error())) return false;
  drop(group);
  group.slice = std::nullopt;
  return true;
}

void Slices::drop(ControlledGroup& group) {
  if (!group.original) return;
  ledger_.end_slice(group.entry);
  group.original = std::nullopt;
}

// Its freezes go on: a process can make its slices refuse, and must not escape its cap by that.
void Slices::refused(const ControlKey& key, Controlled& process, const Error& error) {
  const Time now = clock_.now();
  if (process.slicing.failed(now, error.message()))
    log_warning("process {} keeps its slices: {}", key.first.pid, process.slicing.text(now));
  if (process.slicing.may_try(now)) return;
  for (ControlledGroup& group : process.groups) restore(group);
}

}  // namespace gpushare
