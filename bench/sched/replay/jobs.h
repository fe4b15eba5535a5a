// SPDX-License-Identifier: Apache-2.0
// The jobs that are replayed: what there was to do, and when it was asked for. Plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "shmctl/base/clock.h"

namespace gpushare::replay {

struct Job {
  std::string name{};
  std::string model{};  // what the agent would see as its command; empty: like no other
  Nanos submit{};       // from the start of the trace
  Nanos length{};       // GPU time, alone
  // Of which it is made, all of one length but for the last one, which takes the rest.
  uint64_t iterations = 1;
  uint64_t persistent_mib = 0, ephemeral_mib = 0;
  uint32_t knee_permille = 1000;  // the part of a GPU beyond which it gets no faster
  uint32_t gpus = 1;              // that it works on at once

  // GPU time of one iteration, at least 1 ns.
  Nanos iteration() const {
    return std::max(length / static_cast<Nanos::rep>(iterations), Nanos(1));
  }
  bool operator==(const Job&) const = default;
};

// In the order of their submission; equal ones in the order of the file.
using Jobs = std::vector<Job>;

}  // namespace gpushare::replay
