// SPDX-License-Identifier: Apache-2.0
// Mappings: addresses that a program reserved, memory that it made, and which memory is mapped
// where. Memory is a memfd, so that two mappings of it show the same bytes; kernels and copies find
// it in the MemoryMap while its mapping gives access. Any thread may call.
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

// Destroyed when its handle is released and it is mapped nowhere.
struct MadeMemory {
  ~MadeMemory();
  Fd file;
  size_t bytes = 0;
  std::function<void()> give_back;  // frees it on the simulated GPU
};

class Mappings {
 public:
  static constexpr size_t kGranularity = size_t{2} << 20;  // as on an H200

  explicit Mappings(MemoryMap& memory) : memory_(memory) {}

  // Errors are INVALID_VALUE, and for reserve() and make() also OUT_OF_MEMORY. Addresses and sizes
  // must be multiples of kGranularity.
  CUresult reserve(size_t bytes, size_t alignment, uintptr_t* address);
  CUresult free(uintptr_t address, size_t bytes);
  // `give_back` is called when the memory is destroyed, also when this fails.
  CUresult make(size_t bytes, std::function<void()> give_back,
                CUmemGenericAllocationHandle* handle);
  CUresult release(CUmemGenericAllocationHandle handle);
  CUresult map(uintptr_t address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle);
  // In these the range must consist of whole mappings without a gap.
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
  // Finds the first mapping of the range and the one behind its last. Returns false when the
  // mappings do not make up the range.
  bool range(uintptr_t address, size_t bytes, ByAddress::iterator* begin, ByAddress::iterator* end);

  MemoryMap& memory_;
  HandleTable<MadeMemory*, MadeMemory> made_;
  mutable std::mutex mutex_;                  // protects the members that follow
  std::map<uintptr_t, size_t> reservations_;  // bytes by address
  ByAddress mappings_;
};

}  // namespace gpushare::standin
