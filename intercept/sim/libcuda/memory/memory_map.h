// SPDX-License-Identifier: Apache-2.0
// Memory that kernels may touch: the simulated GPU's, and pinned host memory. A device pointer is
// the host address of the same bytes, so that a copy is a copy. The system gives pages of device
// memory only when they are touched: allocating 100 GB costs nothing. Thread-safe.
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
  bool is_device = false;  // else pinned host memory
  uintptr_t context = 0;   // whose it is
  uint32_t remote = 0;     // the server's name of device memory
  unsigned host_flags = 0;
  bool is_mapped = false;  // by Mappings, which alone takes it away
};

class MemoryMap {
 public:
  // Null when the system has no address space left. The memory is filled with zeros.
  void* add(const MemoryRange& range);
  // REQUIRES: nothing uses it any more. nullopt: no range of that kind begins there.
  std::optional<MemoryRange> remove(const void* address, bool is_device);
  // What Mappings put there, if it did not before; and that it is there no more.
  void add_mapped(void* address, size_t bytes);
  void remove_mapped(const void* address);
  // All of a context, without the server's part.
  void remove_all(uintptr_t context);

  // The bytes, if they lie within one range, or mapped ones side by side.
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
