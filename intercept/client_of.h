// SPDX-License-Identifier: Apache-2.0
// In which client of the driver something happened. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "intercept/event.h"

namespace gpushare {

// nullopt: the event is not of a client.
inline std::optional<uint32_t> client_of(const DriverEvent& event) {
  return std::visit(
      [](const auto& what) -> std::optional<uint32_t> {
        if constexpr (requires { what.client; }) return what.client;
        return std::nullopt;
      },
      event.what);
}

}  // namespace gpushare
