// SPDX-License-Identifier: Apache-2.0
// Addresses that are reserved, memory that is made, and what is mapped where. Memory is a file of
// the kernel's, so that what is mapped twice is the same bytes; kernels and copies find it in the
// MemoryMap while its mapping gives access. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "intercept/sim/libcuda/memory/handles.h"
#include "intercept/sim/libcuda/memory/memory_map.h"
#include "shmctl/base/fd.h"

namespace gpushare::standin {

// Goes when its handle is released and it is mapped nowhere.
struct MadeMemory {
  ~MadeMemory();
  Fd file;
  size_t bytes = 0;
  std::function<void()> give_back;  // to the simulated GPU
};

class Mappings {
 public:
  static constexpr size_t kGranularity = size_t{2} << 20;  // an H200's

  explicit Mappings(MemoryMap& memory) : memory_(memory) {}

  // All errors are INVALID_VALUE but where said. Addresses and sizes are multiples of kGranularity.
  CUresult reserve(size_t bytes, size_t alignment, uintptr_t* address);  // OUT_OF_MEMORY
  CUresult free(uintptr_t address, size_t bytes);
  // Calls `give_back` at its end, also when this fails. OUT_OF_MEMORY.
  CUresult make(size_t bytes, std::function<void()> give_back,
                CUmemGenericAllocationHandle* handle);
  CUresult release(CUmemGenericAllocationHandle handle);
  CUresult map(uintptr_t address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle);
  // Of whole mappings without a gap, here and below.
  CUresult unmap(uintptr_t address, size_t bytes);
  CUresult set_access(uintptr_t address, size_t bytes, CUmemAccess_flags flags);
  CUresult get_access(uintptr_t address, CUmemAccess_flags* flags) const;

 private:
  struct Mapping {
    size_t bytes = 0;
    std::shared_ptr<MadeMemory> memory;
    CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  };
  using ByAddress = std::map<uintptr_t, Mapping>;

  bool is_reserved(uintptr_t address, size_t bytes) const;
  bool is_free(uintptr_t address, size_t bytes) const;
  // The first mapping and the one behind the last; false: they do not make up the range.
  bool range(uintptr_t address, size_t bytes, ByAddress::iterator* begin, ByAddress::iterator* end);

  MemoryMap& memory_;
  HandleTable<MadeMemory*, MadeMemory> made_;
  mutable std::mutex mutex_;                  // of what follows
  std::map<uintptr_t, size_t> reservations_;  // bytes of each
  ByAddress mappings_;
};

}  // namespace gpushare::standin
