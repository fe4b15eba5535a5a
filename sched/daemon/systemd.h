// SPDX-License-Identifier: Apache-2.0
// What a service of Type=notify tells systemd (sd_notify(3)): one datagram to $NOTIFY_SOCKET.
// Without that variable, so outside systemd, it does nothing.
#pragma once

#include <optional>
#include <string_view>

#include "shmctl/base/clock.h"

namespace gpushare {

// "READY=1", "WATCHDOG=1", "STOPPING=1", "STATUS=...". Never blocks; a failure is ignored, systemd
// notices silence by itself.
void notify_systemd(std::string_view state);

// How often the watchdog must hear from us, half of what systemd allows; nullopt: it does not care.
std::optional<Micros> watchdog_interval();

}  // namespace gpushare
