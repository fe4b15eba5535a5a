// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/credit/lengths.h"

#include <algorithm>

namespace gpushare::shim {

bool Lengths::begin(const MemoryDriver& driver, CUcontext context, CUstream stream, Class of) {
  if (!lock_.try_lock()) return false;
  if (is_on_its_way_ && context_ == context) collect(driver);
  if (context_ != context) {
    context_ = context;
    first_ = last_ = nullptr;
    is_on_its_way_ = false;
  }
  const bool is_ready =
      !is_on_its_way_ &&
      (first_ != nullptr || driver.cuEventCreate(&first_, CU_EVENT_DEFAULT) == CUDA_SUCCESS) &&
      (last_ != nullptr || driver.cuEventCreate(&last_, CU_EVENT_DEFAULT) == CUDA_SUCCESS) &&
      driver.cuEventRecord(first_, stream) == CUDA_SUCCESS;
  if (!is_ready) {
    lock_.unlock();
    return false;
  }
  class_ = of;
  return true;
}

void Lengths::end(const MemoryDriver& driver, CUstream stream) {
  is_on_its_way_ = driver.cuEventRecord(last_, stream) == CUDA_SUCCESS;
  lock_.unlock();
}

void Lengths::collect(const MemoryDriver& driver) {
  if (driver.cuEventQuery(last_) == CUDA_ERROR_NOT_READY) return;
  is_on_its_way_ = false;
  float ms = 0;
  if (driver.cuEventElapsedTime(&ms, first_, last_) != CUDA_SUCCESS || !(ms >= 0)) return;
  const auto sample = std::max<uint64_t>(static_cast<uint64_t>(ms * 1e6F), 1);
  const uint64_t before = means_[class_].load(std::memory_order_relaxed);
  const uint32_t known = samples_[class_].load(std::memory_order_relaxed);
  const uint64_t parts = std::min<uint64_t>(known + 1, kParts);
  means_[class_].store((before * (parts - 1) + sample + parts - 1) / parts,
                       std::memory_order_relaxed);
  samples_[class_].store(static_cast<uint32_t>(parts), std::memory_order_relaxed);
}

// Without a call of the driver: the events are gone.
void Lengths::forget(CUcontext context) {
  const Locked locked(lock_);
  if (context_ != context) return;
  context_ = nullptr;
  first_ = last_ = nullptr;
  is_on_its_way_ = false;
}

}  // namespace gpushare::shim
