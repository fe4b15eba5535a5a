// SPDX-License-Identifier: Apache-2.0
// Translates one record of the kernel module's event ring into the types of event.h and notice.h.
// Pure; any thread may call. Any bytes give a value or nothing: unknown kinds and flags are
// skipped.
#pragma once

#include <optional>

#include "intercept/event.h"
#include "intercept/kmod/notice.h"
#include "kmod/uapi/gpushare.h"

namespace gpushare::kmod {

// What a record means to each of the two readers; the notice is handed out first.
struct Translation {
  std::optional<KernelNotice> notice;
  std::optional<DriverEvent> event;
};

Translation translate(const gpushare_event& record);

}  // namespace gpushare::kmod
