// SPDX-License-Identifier: Apache-2.0
// MemoryMap: the memory that kernels may touch, which is memory of the simulated GPU and pinned
// host memory. A device pointer is the host address of the bytes. The system gives a page of device
// memory only when it is touched, so that an allocation of 100 GB costs nothing. Any thread may
// call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "intercept/cuda/cuda_api.h"

namespace gpushare::standin {

struct MemoryRange {
  size_t bytes = 0;
  bool is_device = false;  // false for pinned host memory
  uintptr_t context = 0;   // its context
  uint32_t remote = 0;     // the server's name of device memory
  unsigned host_flags = 0;
  bool is_mapped = false;      // Mappings added it, and only Mappings removes it
  bool is_registered = false;  // the program's own memory, which is not freed here
};

class MemoryMap {
 public:
  // Makes memory that is filled with zeros. Null when the system has no address space left.
  void* add(const MemoryRange& range);
  // Frees a range that nothing uses any more. nullopt when no range of that kind begins there.
  std::optional<MemoryRange> remove(const void* address, bool is_device);
  // Mappings calls these when a mapping gets access, and when it has none any more.
  void add_mapped(void* address, size_t bytes);
  void remove_mapped(const void* address);
  // The program's own memory, pinned from now on. False: a part of it is in the map already.
  bool add_registered(void* address, const MemoryRange& range);
  // Returns false if no registered memory begins there.
  bool remove_registered(const void* address);
  // Frees all memory of a context, but not on the server.
  void remove_all(uintptr_t context);

  // The bytes, if they lie within one range or within adjacent mapped ones; otherwise null.
  template <class T = std::byte>
  T* resolve(uint64_t address, uint64_t count = 1) const {
    return static_cast<T*>(resolve_bytes(address, count, sizeof(T)));
  }
  bool is_device(const void* address) const;
  bool is_pinned_host(const void* address, size_t bytes) const;
  std::optional<MemoryRange> range_at(const void* address) const;

 private:
  void* resolve_bytes(uint64_t address, uint64_t count, uint64_t size) const;

  mutable std::mutex mutex_;
  std::map<uintptr_t, MemoryRange> ranges_;
};

}  // namespace gpushare::standin
