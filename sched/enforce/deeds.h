// SPDX-License-Identifier: Apache-2.0
// Deeds: freezes and thaws of processes on one GPU, as they are asked of the driver. All that
// freezes at one moment goes in one call, and all that thaws; when that fails, each process is
// asked for by itself, so that one refusal does not spare the others. Nothing here writes the
// ledger or remembers anything: the caller has written ahead what may be frozen, and enters what
// came of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sched/enforce/controlled.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"

namespace gpushare {

struct FreezeDeed {
  // Of one channel group.
  struct Part {
    GroupRef ref;
    FrozenChannels channels;       // after the deed without those in `gone`
    std::vector<uint32_t> gone{};  // that the driver does not have
    bool is_taken_back = false;    // after a failure: nothing of it is frozen
  };
  ControlKey key;
  std::vector<Part> parts;
  Result<> result{};
  Time at{};  // when the driver had answered

  // Nothing was frozen, because the process has gone.
  void fail_as_gone(Time now);
};

struct ThawDeed {
  ControlKey key;
  ThawRounds rounds;
  Result<> result{};  // no_such_process: all is gone
  Time at{};
};

// Of what is asked for together. Thaws first: a GPU that passes from one to another always has
// somebody to work for. Freezes first: the two are never there both, and a third one waits for one
// of them at most; the GPU stands still for some 0.5 ms.
enum class SwitchOrder : uint8_t { kThawsFirst, kFreezesFirst };

// What freezes and what thaws together, none of it twice.
struct Switches {
  std::vector<FreezeDeed> freezes{};
  std::vector<ThawDeed> thaws{};
  SwitchOrder order = SwitchOrder::kThawsFirst;

  bool is_empty() const { return freezes.empty() && thaws.empty(); }
  // Freezes go first from then on if they did in any of it.
  void add(Switches more);
};

// After a freeze that failed what it froze in part is thawed again (a surplus thaw is harmless).
// `is_moot`: the process has nothing to freeze any more, so that it is not asked for by itself.
void carry_out(Gpu& gpu, uint32_t index, std::span<FreezeDeed> freezes, const Clock& clock,
               const std::function<bool(const ControlKey&)>& is_moot);
void carry_out(Gpu& gpu, uint32_t index, std::span<ThawDeed> thaws, const Clock& clock);
void carry_out(Gpu& gpu, uint32_t index, Switches& switches, const Clock& clock,
               const std::function<bool(const ControlKey&)>& is_moot);
// The rounds from `first` on; what is gone needs no thaw. Returns the first failure.
Result<> thaw(Gpu& gpu, uint32_t index, const ThawRounds& rounds, std::size_t first = 0);

}  // namespace gpushare
