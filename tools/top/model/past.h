// SPDX-License-Identifier: Apache-2.0
// Past is how the time of each GPU was divided among the tenants, second by second, and which
// tenant has which colour. It is pure: it takes snapshots with the time at which they were taken.
// The minute that the agent keeps of each process fills what was before the first snapshot, and the
// seconds between two that lie further apart. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "shmctl/plane/snapshot.h"
#include "tools/top/model/styled.h"

namespace gpushare {

struct PastSecond {
  bool is_known = false;
  std::array<uint16_t, kInks + 1> permille{};  // of the GPU's time, by ink; the last is kOthers
};

class Past {
 public:
  // Longer than the widest screen has columns.
  static constexpr size_t kSeconds = 600;

  void update(const PlaneSnapshot& snapshot, Time now);

  // The newest is the last. The GPU's index is below kMaxGpus.
  const std::deque<PastSecond>& of(uint32_t gpu) const { return gpus_[gpu]; }
  Ink ink_of(const TenantRecord& tenant) const;

 private:
  void give_inks(const PlaneSnapshot& snapshot);
  PastSecond now_on(const PlaneSnapshot& snapshot, const GpuRecord& gpu) const;

  std::array<std::deque<PastSecond>, kMaxGpus> gpus_;
  std::array<std::string, kInks> owners_;  // the tenant's name, by ink; empty: nobody's
  bool has_begun_ = false;
  Time newest_{};  // of the last second in gpus_
};

}  // namespace gpushare
