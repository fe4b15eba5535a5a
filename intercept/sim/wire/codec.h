// SPDX-License-Identifier: Apache-2.0
// Translates a DriverEvent to its form on the wire and back. Pure; any thread may call.
#pragma once

#include <optional>

#include "intercept/event.h"
#include "intercept/sim/wire/protocol.h"

namespace gpushare::sim {

Event encode(const DriverEvent& event);
// nullopt when it is no event of this version.
std::optional<DriverEvent> decode(const Event& event);

inline Time from_ns(uint64_t ns) { return Time(Nanos(static_cast<int64_t>(ns))); }

}  // namespace gpushare::sim
