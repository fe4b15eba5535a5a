// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/libcuda/memory/memory_map.h"

#include <sys/mman.h>

#include <iterator>

namespace gpushare::standin {
namespace {

using Ranges = std::map<uintptr_t, MemoryRange>;

// Returns the range that contains the address, or end().
Ranges::const_iterator range_of(const Ranges& ranges, uintptr_t address) {
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return ranges.end();
  const auto found = std::prev(next);
  return address - found->first < found->second.bytes ? found : ranges.end();
}

}  // namespace

void* MemoryMap::add(const MemoryRange& range) {
  void* memory = ::mmap(nullptr, range.bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // With large pages by default, one touched word would cost 2 MiB. An error means that there are
  // none.
  static_cast<void>(::madvise(memory, range.bytes, MADV_NOHUGEPAGE));
  const std::lock_guard lock(mutex_);
  ranges_.emplace(reinterpret_cast<uintptr_t>(memory), range);
  return memory;
}

std::optional<MemoryRange> MemoryMap::remove(const void* address, bool is_device) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<uintptr_t>(address));
  if (found == ranges_.end() || found->second.is_device != is_device || found->second.is_mapped ||
      found->second.is_registered)
    return std::nullopt;
  const MemoryRange range = found->second;
  ::munmap(reinterpret_cast<void*>(found->first), range.bytes);
  ranges_.erase(found);
  return range;
}

void MemoryMap::add_mapped(void* address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  ranges_.emplace(reinterpret_cast<uintptr_t>(address),
                  MemoryRange{.bytes = bytes, .is_device = true, .is_mapped = true});
}

void MemoryMap::remove_mapped(const void* address) {
  const std::lock_guard lock(mutex_);
  ranges_.erase(reinterpret_cast<uintptr_t>(address));
}

bool MemoryMap::add_registered(void* address, const MemoryRange& range) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(begin);
  if (range_of(ranges_, begin) != ranges_.end() ||
      (next != ranges_.end() && next->first - begin < range.bytes))
    return false;
  const auto at = ranges_.emplace(begin, range).first;
  at->second.is_registered = true;
  return true;
}

bool MemoryMap::remove_registered(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<uintptr_t>(address));
  if (found == ranges_.end() || !found->second.is_registered) return false;
  ranges_.erase(found);
  return true;
}

void MemoryMap::remove_all(uintptr_t context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(ranges_, [&](const auto& item) {
    if (item.second.context != context) return false;
    if (item.second.is_registered) return true;
    ::munmap(reinterpret_cast<void*>(item.first), item.second.bytes);
    return true;
  });
}

void* MemoryMap::resolve_bytes(uint64_t address, uint64_t count, uint64_t size) const {
  const std::lock_guard lock(mutex_);
  const auto found = range_of(ranges_, address);
  if (found == ranges_.end() || address % size != 0) return nullptr;
  uint64_t room = found->second.bytes - (address - found->first);
  for (auto next = std::next(found); found->second.is_mapped && next != ranges_.end() &&
                                     next->second.is_mapped && next->first == address + room;
       ++next)
    room += next->second.bytes;
  return count <= room / size ? reinterpret_cast<void*>(address) : nullptr;
}

bool MemoryMap::is_device(const void* address) const {
  const auto range = range_at(address);
  return range && range->is_device;
}

bool MemoryMap::is_pinned_host(const void* address, size_t bytes) const {
  const auto range = range_at(address);
  return range && !range->is_device &&
         resolve_bytes(reinterpret_cast<uintptr_t>(address), bytes, 1) != nullptr;
}

std::optional<MemoryRange> MemoryMap::range_at(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto found = range_of(ranges_, reinterpret_cast<uintptr_t>(address));
  if (found == ranges_.end()) return std::nullopt;
  return found->second;
}

}  // namespace gpushare::standin
