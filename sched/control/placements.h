// SPDX-License-Identifier: Apache-2.0
// Placements: who was told on which GPU to run. A program of PyTorch takes seconds to its first
// context, and as long again until it has the memory that it asked for; without this all programs
// that are started meanwhile would go to the same GPU. One thread, the agent's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sched/orders/place.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

class Placements {
 public:
  struct Placed {
    ProcessId process{};
    uint32_t gpu = 0;
    double length = 0;  // ns
    uint64_t bytes = 0;
    Time since{};
    uid_t uid = 0;
    bool has_come = false;  // it has had something there; kept by add_to()
  };
  // Of one user so many are kept, and kMost of all; then the oldest of them goes.
  static constexpr size_t kMostOfUser = 512, kMost = 4096;

  // Replaces what was said to this process before.
  void note(const Placed& placed);
  void forget(const ProcessId& process);
  // The bytes that one of them, or what it has started, has on its GPU; none: nothing is there.
  using BytesThere = std::function<std::optional<uint64_t>(const Placed&)>;
  using IsGone = std::function<bool(const ProcessId&)>;
  // Adds to each GPU the work of those that are on their way to it, and keeps the memory that they
  // asked for and do not have yet, also when they have come. Those that are gone are forgotten, as
  // was seen in the last second, and those that show nothing for ten minutes.
  void add_to(std::vector<PlaceGpu>& gpus, Time now, const BytesThere& bytes_there,
              const IsGone& is_gone);

 private:
  std::vector<Placed> placed_;  // in the order in which it was said
  Time looked_{};               // who is gone
};

}  // namespace gpushare
