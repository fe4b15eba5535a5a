// SPDX-License-Identifier: Apache-2.0
// What the agent, as a service of Type=notify, tells systemd (see sd_notify(3)). It is called on
// the agent's thread, and does nothing outside systemd, where the environment variables are
// missing.
#pragma once

#include <optional>
#include <string_view>

#include "shmctl/base/clock.h"

namespace gpushare {

// Sends `state` ("READY=1", "WATCHDOG=1" or "STOPPING=1") as one datagram to $NOTIFY_SOCKET. It
// never blocks. A failure is ignored, because systemd notices silence by itself.
void notify_systemd(std::string_view state);

// How often to send "WATCHDOG=1": half of the time that systemd allows ($WATCHDOG_USEC). nullopt:
// systemd does not watch this service, or the variable is no positive number.
std::optional<Micros> watchdog_interval();

}  // namespace gpushare
