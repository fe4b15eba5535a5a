// SPDX-License-Identifier: Apache-2.0
// One record of the kernel module's event ring, in the vocabulary of event.h and notice.h. Pure and
// total: any bytes give a value or nothing; kinds and flags that are not known are skipped. Any
// thread.
#pragma once

#include <optional>

#include "intercept/event.h"
#include "intercept/kmod/notice.h"
#include "kmod/uapi/gpushare.h"

namespace gpushare::kmod {

// What a record says to each reader; the notice comes first.
struct Translation {
  std::optional<KernelNotice> notice;
  std::optional<DriverEvent> event;
};

Translation translate(const gpushare_event& record);

}  // namespace gpushare::kmod
