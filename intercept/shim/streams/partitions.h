// SPDX-License-Identifier: Apache-2.0
// The parts of one GPU that streams can be in: green contexts of the device's primary context, each
// over a set of groups of SMs (at most 6 MiB of memory each).
// The groups are those of 8 into which the driver splits the GPU, and one of the SMs that this
// leaves (an H200: 15, and one of 12); fewer than 8 of them belong to the last group instead. Made
// when a set is first wanted, and kept for the next time, until there are kMost and another one is
// wanted, or the program lets the primary context go. The driver waits until the process's kernels
// have ended when one is made, and lets other threads' launches wait, too: the owner does it only
// when nothing runs.
//
// The owner locks.
#pragma once

#include <cstdint>

#include "intercept/shim/driver/driver.h"

namespace gpushare::shim {

class Partitions {
 public:
  // Where a stream is: 0 is home, the whole GPU; n > 0 the n-th partition.
  using Place = uint8_t;
  static constexpr int kMost = 16;

  static constexpr int kCannot = -1, kNone = -2;

  // The partition of these groups, home for the empty set; kNone: it is not made yet.
  int find(uint64_t groups) const;
  int count() const;
  bool is_full() const { return count() == kMost; }
  // Home where none of the groups exists; kCannot: the driver says no.
  // REQUIRES: there is none, and it is not full; nothing of the process runs on the device.
  int make(const Driver& driver, CUdevice device, uint64_t groups);
  CUgreenCtx green(Place place) const { return made_[place - 1].green; }
  // REQUIRES: nothing runs in it, and its streams are destroyed.
  void drop(const Driver& driver, Place place);
  void drop_all(const Driver& driver);

 private:
  static constexpr unsigned kMostGroups = 64;
  static constexpr unsigned kSmsOfGroup = 8;

  struct Made {
    uint64_t groups;
    CUgreenCtx green;  // null: a free place
  };

  bool split(const Driver& driver, CUdevice device);

  unsigned group_count_ = 0;  // 0: not split yet
  unsigned part_count_ = 0;   // the same, or one more, which belongs to the last group
  CUdevResource parts_[kMostGroups + 1] = {};
  Made made_[kMost] = {};
};

}  // namespace gpushare::shim
