// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/streams/partitions.h"

namespace gpushare::shim {

bool Partitions::split(const Driver& driver, CUdevice device) {
  if (group_count_ > 0) return true;
  CUdevResource all{}, rest{};
  unsigned count = kMostGroups;
  if (driver.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS)
    return false;
  if (driver.cuDevSmResourceSplitByCount(parts_, &count, &all, &rest, 0, kSmsOfGroup) !=
      CUDA_SUCCESS)
    return false;
  if (count == 0) return false;
  group_count_ = part_count_ = count;
  const bool has_rest = rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount > 0;
  if (has_rest) parts_[part_count_++] = rest;
  if (has_rest && rest.sm.smCount >= kSmsOfGroup && count < kMostGroups) ++group_count_;
  return true;
}

int Partitions::find(uint64_t groups) const {
  if (groups == 0) return 0;
  for (int i = 0; i < kMost; ++i)
    if (made_[i].green != nullptr && made_[i].groups == groups) return i + 1;
  return kNone;
}

Partitions::Place Partitions::place_of(CUcontext context) const {
  for (int i = 0; i < kMost; ++i)
    if (context != nullptr && made_[i].context == context) return static_cast<Place>(i + 1);
  return 0;
}

int Partitions::count() const {
  int count = 0;
  for (const Made& made : made_) count += made.green != nullptr ? 1 : 0;
  return count;
}

int Partitions::make(const Driver& driver, CUdevice device, uint64_t groups) {
  int free = 0;
  while (made_[free].green != nullptr) ++free;
  if (!split(driver, device)) return kCannot;

  CUdevResource chosen[kMostGroups + 1];
  unsigned count = 0;
  for (unsigned i = 0; i < part_count_; ++i) {
    const unsigned group = i < group_count_ ? i : group_count_ - 1;
    if ((groups >> group & 1) != 0) chosen[count++] = parts_[i];
  }
  if (count == 0) return 0;
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  if (driver.cuDevResourceGenerateDesc(&description, chosen, count) != CUDA_SUCCESS) return kCannot;
  if (driver.cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM) !=
      CUDA_SUCCESS)
    return kCannot;
  CUcontext context = nullptr;
  if (driver.cuCtxFromGreenCtx(&context, green) != CUDA_SUCCESS) context = nullptr;
  made_[free] = {groups, green, context};
  return free + 1;
}

void Partitions::drop(const Driver& driver, Place place) {
  Made& gone = made_[place - 1];
  if (gone.green != nullptr) driver.cuGreenCtxDestroy(gone.green);
  gone = {};
}

void Partitions::drop_all(const Driver& driver) {
  for (int i = 1; i <= kMost; ++i) drop(driver, static_cast<Place>(i));
}

}  // namespace gpushare::shim
