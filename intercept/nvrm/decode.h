// SPDX-License-Identifier: Apache-2.0
// Turns one record of the eBPF probe into what it says, in the vocabulary of event.h. Pure and
// total: any bytes of any length give a value and nothing else, because most of a record is memory
// of the observed program, which may be hostile. Any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "intercept/event.h"

namespace gpushare::nvrm {

// A record says two things: that a process uses the driver, and mostly what it just did.
struct Sighting {
  ProcessOpened opened;              // what to report first if the process was not known yet
  std::optional<DriverEvent> event;  // nothing: the call failed or changed nothing of interest
  Time time{};
  ProcessId process;
};

// Nothing: not a record (too short, unknown kind, no pid).
std::optional<Sighting> decode(std::span<const std::byte> record);

// Which engine a channel group with this engineType runs on (NV2080_ENGINE_TYPE_*,
// class/cl2080_notification.h): 1-8 GR0-7, 9-18 COPY0-9, 52-61 COPY10-19.
Engine engine_of(uint32_t engine_type);

}  // namespace gpushare::nvrm
