// SPDX-License-Identifier: Apache-2.0
// Translates any bytes as records of the kernel module.
#include <cstring>

#include "intercept/kmod/translate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpushare;
  gpushare_event record{};
  std::memcpy(&record, data, std::min(size, sizeof record));
  const kmod::Translation said = kmod::translate(record);
  if (said.event && said.event->process.pid <= 0) __builtin_trap();
  if (!said.notice) return 0;
  if (const auto* assigned = std::get_if<TenantAssigned>(&said.notice->what))
    if (assigned->tenant.size() > GPUSHARE_TENANT_NAME_BYTES) __builtin_trap();
  return 0;
}
