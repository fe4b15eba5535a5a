// SPDX-License-Identifier: Apache-2.0
// Ledger: what the agent did to other programs and what must be undone if it dies, so that no
// program stays frozen. The agent writes it; the supervisor, or `gpushared --recover`, reads it
// once the agent is dead. One Ledger object is used by one thread of one process at a time;
// for_each_entry() may be called from any thread.
//
// Order of the steps, for each channel group:
//     begin_freeze, then the driver freezes            the driver thaws, then end_thaw
//     note_slice, then the driver sets the slice       the driver restores it, then end_slice
// An entry is written before the deed and erased after it is undone, so that the ledger lists at
// least everything that is done, whenever the agent dies.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

// One channel group of one process, or the process itself. Ordered, so that a process's groups are
// neighbours.
struct LedgerKey {
  int32_t pid = 0;
  uint64_t start_ticks = 0;
  uint32_t gpu = 0;
  uint32_t client = 0;
  uint32_t group = 0;
  auto operator<=>(const LedgerKey&) const = default;
  // What is listed then is how often the process is stopped.
  bool is_process() const { return client == 0 && group == 0; }
};

// The ledger may list more than is done: the agent may die between a thaw and its end_thaw, or
// between begin_freeze and the freeze. Recovery then thaws once too often, which the driver takes
// without harm (driver-facts, section 3), or restores a slice that is the original one already.
//
// Each entry is a Slot<LedgerRecord>, and every step replaces the whole record: death at any
// instruction leaves the entry as it was before the step or as it is after it. A group of more than
// kLedgerChannels channels has several entries (part 0, 1, ...), which are written one after the
// other, all before the driver is asked; only part 0 has the slice. An entry with client 0, group 0
// and no channels stands for the process itself: begin_freeze and end_thaw count how often it is
// stopped (intercept/process_stop.h).
class Ledger {
 public:
  // Takes over what the region lists already. `region` must outlive the ledger.
  explicit Ledger(Region& region);

  // Call before the driver is asked to freeze `channels` of the group; `fd` is the owner's
  // descriptor (GroupRef::fd). Calls are counted: two need two end_thaw. Returns the index of the
  // group's first entry, which names the group until the entry is free again. Error
  // no_space_on_device when no entry is left for the process: nothing was written, and the group
  // must not be frozen. A process gets four entries as long as there are any, and more than that
  // only of what is not reserved for others, so that one with very many groups or channels cannot
  // use up what they need. The entry that stands for the process itself is given as long as there
  // is one.
  Result<uint32_t> begin_freeze(const LedgerKey& key, int32_t fd,
                                std::span<const uint32_t> channels);
  // Call after the driver thawed the group once, or refused the freeze. The entry is freed when no
  // freeze and no changed slice is left in it.
  void end_thaw(uint32_t index);

  // Call before the group's slice is changed for the first time. A slice that was noted earlier
  // stays, because it is the original. Returns and fails as begin_freeze does.
  Result<uint32_t> note_slice(const LedgerKey& key, int32_t fd, uint32_t original_us);
  // Call after the original slice was restored, or the first change was refused.
  void end_slice(uint32_t index);

  // Frees one entry, when what it listed has been undone (recovery) or is gone. The other entries
  // of a large group stay until they are cleared themselves.
  void clear(uint32_t index);
  // Frees all entries of a group that its process has freed.
  void clear_group(const LedgerKey& key);

  // The groups that have entries, and how often one is to be thawed (0: it is not listed).
  std::vector<LedgerKey> groups() const;
  uint32_t freezes(const LedgerKey& key) const;

  // Calls fn(index, record) for every entry that is taken, each complete. fn may call clear(index).
  void for_each(const std::function<void(uint32_t, const LedgerRecord&)>& fn) const;

 private:
  Result<std::vector<uint32_t>*> reserve(const LedgerKey& key, std::size_t parts);
  std::vector<uint32_t> parts_of(uint32_t index) const;
  std::size_t entries_of(const LedgerKey& process) const;
  void publish(uint32_t index);
  void settle(uint32_t index);

  Region& region_;
  // A copy of what the region holds, to find entries without reading it: entries by index, a
  // group's entries by part, and the free ones, of which the last is taken next.
  std::vector<LedgerRecord> entries_;
  std::map<LedgerKey, std::vector<uint32_t>> groups_;
  std::vector<uint32_t> free_;
};

// Calls fn as for_each() does, for readers without a Ledger. An entry that its writer overtakes in
// every attempt is skipped.
void for_each_entry(const Region& region,
                    const std::function<void(uint32_t, const LedgerRecord&)>& fn);
// Whether there is none.
bool is_ledger_empty(const Region& region);

}  // namespace gpushare
