// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/libcuda/memory/mappings.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace gpushare::standin {
namespace {

bool is_whole(uint64_t number) { return number != 0 && number % Mappings::kGranularity == 0; }

// In the API these handles are numbers.
MadeMemory* key(CUmemGenericAllocationHandle handle) {
  return reinterpret_cast<MadeMemory*>(handle);
}

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

// Reserves addresses without memory, which no other allocation gets.
void* map_nothing(void* where, size_t bytes, int more_flags) {
  return ::mmap(where, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | more_flags,
                -1, 0);
}

}  // namespace

MadeMemory::~MadeMemory() { give_back(); }

CUresult Mappings::reserve(size_t bytes, size_t alignment, uintptr_t* address) {
  if (!is_whole(bytes) || (alignment != 0 && !std::has_single_bit(alignment)))
    return CUDA_ERROR_INVALID_VALUE;
  const size_t unit = std::max(alignment, kGranularity);
  void* memory = map_nothing(nullptr, bytes + unit, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t aligned = (begin + unit - 1) / unit * unit;
  if (aligned != begin) ::munmap(memory, aligned - begin);
  ::munmap(at(aligned + bytes), begin + unit - aligned);
  const std::lock_guard lock(mutex_);
  reservations_.emplace(aligned, bytes);
  *address = aligned;
  return CUDA_SUCCESS;
}

CUresult Mappings::free(uintptr_t address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes || !is_free(address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  ::munmap(at(address), bytes);
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

CUresult Mappings::make(size_t bytes, std::function<void()> give_back,
                        CUmemGenericAllocationHandle* handle) {
  auto memory = std::make_shared<MadeMemory>();
  memory->bytes = bytes;
  memory->give_back = std::move(give_back);
  memory->file = Fd(::memfd_create("simulated-gpu-memory", MFD_CLOEXEC));
  if (!memory->file.is_open() || ::ftruncate(memory->file.get(), static_cast<off_t>(bytes)) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<uintptr_t>(made_.add(std::move(memory)));
  return CUDA_SUCCESS;
}

CUresult Mappings::release(CUmemGenericAllocationHandle handle) {
  return made_.remove(key(handle)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Requires that mutex_ is held, as do is_free() and range().
bool Mappings::is_free(uintptr_t address, size_t bytes) const {
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first < address + bytes) return false;
  return next == mappings_.begin() ||
         std::prev(next)->first + std::prev(next)->second.bytes <= address;
}

bool Mappings::range(uintptr_t address, size_t bytes, ByAddress::iterator* begin,
                     ByAddress::iterator* end) {
  *begin = *end = mappings_.find(address);
  uintptr_t reached = address;
  while (*end != mappings_.end() && (*end)->first == reached && reached < address + bytes)
    reached += (*end)++->second.bytes;
  return bytes != 0 && reached == address + bytes;
}

// Requires that mutex_ is held. The range must lie in one reservation.
bool Mappings::is_reserved(uintptr_t address, size_t bytes) const {
  auto found = reservations_.upper_bound(address);
  if (found == reservations_.begin()) return false;
  --found;
  return address + bytes <= found->first + found->second;
}

CUresult Mappings::map(uintptr_t address, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle) {
  auto memory = made_.find(key(handle));
  if (!memory || address % kGranularity != 0 || !is_whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  // The driver answers this to a part of the memory; the stand-in also when the part begins at 0.
  if (offset != 0 || bytes > memory->bytes) return CUDA_ERROR_NOT_SUPPORTED;
  const std::lock_guard lock(mutex_);
  if (!is_reserved(address, bytes) || !is_free(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (::mmap(at(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             memory->file.get(), 0) == MAP_FAILED)
    return CUDA_ERROR_MAP_FAILED;
  mappings_.emplace(address, Mapping{bytes, std::move(memory), CU_MEM_ACCESS_FLAGS_PROT_NONE});
  return CUDA_SUCCESS;
}

CUresult Mappings::unmap(uintptr_t address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  ByAddress::iterator begin, end;
  const bool is_nothing = address % kGranularity == 0 && is_whole(bytes) &&
                          is_free(address, bytes) && is_reserved(address, bytes);
  if (is_nothing) return CUDA_SUCCESS;
  if (!range(address, bytes, &begin, &end)) return CUDA_ERROR_INVALID_VALUE;
  for (auto each = begin; each != end; ++each) memory_.remove_mapped(at(each->first));
  map_nothing(at(address), bytes, MAP_FIXED);
  mappings_.erase(begin, end);
  return CUDA_SUCCESS;
}

CUresult Mappings::set_access(uintptr_t address, size_t bytes, CUmemAccess_flags flags) {
  const std::lock_guard lock(mutex_);
  ByAddress::iterator begin, end;
  if (!range(address, bytes, &begin, &end)) return CUDA_ERROR_INVALID_VALUE;
  for (auto each = begin; each != end; ++each) {
    each->second.access = flags;
    if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
      memory_.remove_mapped(at(each->first));
    } else {
      memory_.add_mapped(at(each->first), each->second.bytes);
    }
  }
  return CUDA_SUCCESS;
}

CUresult Mappings::get_access(uintptr_t address, CUmemAccess_flags* flags) const {
  const std::lock_guard lock(mutex_);
  auto found = mappings_.upper_bound(address);
  if (found == mappings_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --found;
  if (address >= found->first + found->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  *flags = found->second.access;
  return CUDA_SUCCESS;
}

}  // namespace gpushare::standin
