// SPDX-License-Identifier: Apache-2.0
// Ledger: what we did to other people's programs and must undo if we die. Written ahead by the
// agent, read by the supervisor or `--recover` once the agent is dead. The first promise of the
// project rests on it: no program stays frozen because we died.
//
// The order of steps, per channel group:
//     begin_freeze -> driver freezes            driver thaws -> end_thaw
//     note_slice   -> driver sets the slice     driver restores -> end_slice
// The entry precedes the deed and outlives it, so at any instant the ledger lists at least all that
// is done. It may list more: death between a thaw and its end_thaw, or between begin_freeze and the
// freeze. Recovery then makes a surplus thaw, which the driver takes without harm (driver-facts,
// section 3), or restores a slice that is the original one already.
//
// Each entry is a Slot<LedgerRecord>, and every step replaces the whole record: death at any
// instruction leaves the entry as before or as after. A group of more than kLedgerChannels channels
// has several entries (part 0, 1, ..); they are written one after the other, all before the driver
// is asked, and only part 0 carries the slice.
//
// An entry of client 0 and group 0 without channels stands for the process itself: it is stopped
// (intercept/process_stop.h), and begin_freeze and end_thaw count that.
//
// Threads: one Ledger object on one thread of one process at a time. for_each_entry: any.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

// One channel group of one process. Ordered, so that a process's groups are neighbours.
struct LedgerKey {
  int32_t pid = 0;
  uint64_t start_ticks = 0;
  uint32_t gpu = 0;
  uint32_t client = 0;
  uint32_t group = 0;
  auto operator<=>(const LedgerKey&) const = default;
};

class Ledger {
 public:
  // Takes over what the region lists already. `region` must outlive the ledger.
  explicit Ledger(Region& region);

  // Call before the driver is asked to freeze `channels` of the group; `fd` is the owner's
  // descriptor (GroupRef::fd). Counts: twice begun needs two end_thaw. Returns the index of the
  // group's first entry, which names the group until the entry is free again. Error
  // no_space_on_device: all entries are taken; nothing was written, and the group must not be
  // frozen.
  Result<uint32_t> begin_freeze(const LedgerKey& key, int32_t fd,
                                std::span<const uint32_t> channels);
  // Call after the driver thawed the group once, or refused the freeze. The entry is freed when no
  // freeze and no changed slice is left in it.
  void end_thaw(uint32_t index);

  // Call before the group's slice is first changed. A slice noted earlier is kept: it is the
  // original.
  Result<uint32_t> note_slice(const LedgerKey& key, int32_t fd, uint32_t original_us);
  // Call after the original slice was restored, or the first change was refused.
  void end_slice(uint32_t index);

  // Frees one entry: what it listed has been undone (recovery), or is gone. The other entries of a
  // large group stay until they are cleared themselves.
  void clear(uint32_t index);
  // Frees all entries of a group that is gone (freed by its process).
  void clear_group(const LedgerKey& key);
  // The same for every group of a process that has exited.
  void clear_process(int32_t pid, uint64_t start_ticks);

  // fn(index, record) of every entry that is taken, each complete. fn may clear(index).
  void for_each(const std::function<void(uint32_t, const LedgerRecord&)>& fn) const;

 private:
  Result<std::vector<uint32_t>*> reserve(const LedgerKey& key, std::size_t parts);
  std::vector<uint32_t> parts_of(uint32_t index) const;
  void publish(uint32_t index);
  void settle(uint32_t index);

  Region& region_;
  // What the region holds, for finding without reading it: entries by index, a group's entries by
  // part, and the free ones (the last is taken next).
  std::vector<LedgerRecord> entries_;
  std::map<LedgerKey, std::vector<uint32_t>> groups_;
  std::vector<uint32_t> free_;
};

// The same without a Ledger, for readers. An entry that its writer keeps overtaking is skipped.
void for_each_entry(const Region& region,
                    const std::function<void(uint32_t, const LedgerRecord&)>& fn);

}  // namespace gpushare
