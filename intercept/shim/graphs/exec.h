// SPDX-License-Identifier: Apache-2.0
// One executable graph of the program: the driver's own, which the program holds, and the copies
// that were made of it for other places than the one where it was captured.
#pragma once

#include <atomic>
#include <cstdint>

#include "intercept/shim/driver/driver.h"
#include "intercept/shim/link/spin_lock.h"
#include "intercept/shim/streams/device.h"

namespace gpushare::shim {

// Zero bytes are one that the program does not hold.
struct Exec {
  using Place = Partitions::Place;
  static constexpr Place kNowhere = 0xFF;
  static constexpr int kPlaces = 1 + Partitions::kMost;

  // Held during a launch, too: the copies are one exec to the program, whose launches never run at
  // the same time.
  SpinLock lock;
  // The stream of the latest launch; null: none can still run, other than behind `behind`. It is
  // written under `lock`, and any thread may ask whether it is its own.
  std::atomic<Stream*> last;
  // Protected by `lock`, like all that follows but for `next`. Null: it was destroyed.
  CUgraphExec original;
  CUgraph form;  // what it was made of; null: it cannot be made again
  unsigned long long flags;
  Device* device;     // where it is launched; null: it was not yet
  Place captured;     // where the kernels of `original` run; kNowhere: in several places
  bool is_examined;   // `captured` and `is_at_home` are known
  bool is_at_home;    // a kernel of `original`, or a graph within it, may be at home
  Place at;           // that of the latest launch
  CUevent behind;     // behind the latest launch, where its stream was forgotten
  Device* behind_of;  // the device of `behind`
  // `behind` is to be asked; if it is null, nobody can say whether that launch has ended.
  bool is_behind;
  uint32_t stale;  // bit n: the copy of the n-th place is older than `form`
  CUgraphExec copies[kPlaces];
  uint64_t used_ns[kPlaces];  // when the graph came to that place last
  uint64_t next_remake_ns;
  // In the list of all that there ever were; set before it is in the list.
  Exec* next;

  // Null: there is none for that place, or it is stale.
  CUgraphExec of(Place place) const {
    if (place == captured) return original;
    return (stale >> place & 1) != 0 ? nullptr : copies[place];
  }
};

}  // namespace gpushare::shim
