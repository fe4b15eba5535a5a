// SPDX-License-Identifier: Apache-2.0
// The partitions of one GPU that this process has made: green contexts of the device's primary
// context, each over a set of SM groups, at most 6 MiB of memory each. The driver splits the GPU
// into groups of 8 SMs; what the split leaves is one more group if it has at least 8 SMs (an H200:
// 15 groups of 8 and one of 12), and otherwise part of the last one. A partition is kept for the
// next time until there are kMost and another one is wanted, or the primary context ends.
//
// Any thread, but the caller holds a lock (Device::lock).
#pragma once

#include <cstdint>

#include "intercept/shim/driver/driver.h"

namespace gpushare::shim {

class Partitions {
 public:
  using Place = uint8_t;  // where a stream is: 0 is home, the whole GPU; n > 0 the n-th partition
  static constexpr int kMost = 16;

  static constexpr int kCannot = -1, kNone = -2;

  // The place of the partition of these groups; 0 for the empty set; kNone: it is not made.
  int find(uint64_t groups) const;
  int count() const;
  bool is_full() const { return count() == kMost; }
  // Returns the place of the new partition; 0 if the GPU has none of the groups; kCannot if the
  // driver refuses. The driver waits until the process's kernels have ended and keeps the launches
  // of other threads waiting. REQUIRES: find() gave kNone, it is not full, and nothing of the
  // process runs on the device.
  int make(const Driver& driver, CUdevice device, uint64_t groups);
  CUgreenCtx green(Place place) const { return made_[place - 1].green; }
  // The context of that green context; null: it was not made, or the driver did not say.
  CUcontext context(Place place) const { return made_[place - 1].context; }
  // The partition that has this context; 0: none.
  Place place_of(CUcontext context) const;
  // REQUIRES: nothing runs in it, and its streams are destroyed.
  void drop(const Driver& driver, Place place);
  void drop_all(const Driver& driver);

 private:
  static constexpr unsigned kMostGroups = 64;
  static constexpr unsigned kSmsOfGroup = 8;

  struct Made {
    uint64_t groups;
    CUgreenCtx green;  // null: a free place
    CUcontext context;
  };

  bool split(const Driver& driver, CUdevice device);

  unsigned group_count_ = 0;  // 0: not split yet
  unsigned part_count_ = 0;   // entries of parts_: group_count_, or one more for the last group
  CUdevResource parts_[kMostGroups + 1] = {};
  Made made_[kMost] = {};
};

}  // namespace gpushare::shim
