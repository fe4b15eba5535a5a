// SPDX-License-Identifier: Apache-2.0
// Translates one record of the eBPF probe into the types of event.h. Pure; any thread may call. Any
// bytes of any length give a value and have no other effect, because most of a record is memory of
// the observed program, which may be hostile.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "intercept/event.h"

namespace gpushare::nvrm {

// A record says that a process uses the driver and, in most cases, what the process just did.
struct Sighting {
  ProcessOpened opened;              // to report first when the process was not known yet
  std::optional<DriverEvent> event;  // nullopt when the call failed or changed nothing of interest
  Time time{};
  ProcessId process;
  int fd = -1;  // the descriptor of the call; -1: it was none
};

// nullopt when the bytes are no record: too short, of an unknown kind, or without a pid.
std::optional<Sighting> decode(std::span<const std::byte> record);

// The engine that a channel group with this engine type runs on (NV2080_ENGINE_TYPE_*,
// class/cl2080_notification.h): 1 to 8 are GR0 to GR7, 9 to 18 COPY0 to COPY9, 52 to 61 COPY10 to
// COPY19.
Engine engine_of(uint32_t engine_type);

// `text` with '?' for every byte that is not printable ASCII. A program sets its comm to any bytes;
// tools and JSON get ASCII only.
std::string printable(std::string text);

}  // namespace gpushare::nvrm
