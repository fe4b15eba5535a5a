// SPDX-License-Identifier: Apache-2.0
// What can be set for a tenant, and the one grammar of it: the configuration file, the control
// socket and the command line all hand their strings to apply_setting(). Plain values, no I/O, any
// thread.
//
//   weight      1..10000 (100)               share of GPU time relative to the other tenants
//   max         max | N% | QUOTA PERIOD (max)  cap on each GPU. N% has up to 3 decimals and a
//   period of
//                                            100 ms; QUOTA PERIOD are us as in cgroup's cpu.max,
//                                            period 1000..1000000, quota 1000..period
//   priority    idle | normal | high (normal)
//   memory_max  BYTES[K|M|G|T] | max (max)   GPU memory; 1K = 1024 bytes
//   sm_percent  1..100 | max (max)           part of the SMs, fixed when a program starts
//   slo_us      0..1000000000 (0)            target time of one iteration, 0 none
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

// GPU time per period. 1 ms <= quota <= period, 1 ms <= period <= 1 s.
struct Cap {
  Micros quota{100'000};
  Micros period{100'000};

  double fraction() const { return static_cast<double>(quota.count()) / period.count(); }
  bool operator==(const Cap&) const = default;
};

struct TenantSettings {
  uint32_t weight = 100;
  Priority priority = Priority::kNormal;
  std::optional<Cap> cap;              // none: "max"
  std::optional<uint64_t> memory_max;  // bytes; none: "max"
  std::optional<uint32_t> sm_percent;  // none: "max"
  Micros slo{0};                       // 0: none

  bool operator==(const TenantSettings&) const = default;
};

struct Setting {
  std::string key;
  std::string value;

  bool operator==(const Setting&) const = default;
};

// The keys above, in that order.
std::span<const std::string_view> setting_keys();
// What a value of `key` may be, for a person ("1 to 10000"); empty for an unknown key.
std::string_view allowed_values(std::string_view key);

// Parses `value` and sets the one member that `key` names; no blanks around it. On error `settings`
// is as before, the code is invalid_argument and the detail names the key, the value and what is
// allowed.
Result<> apply_setting(TenantSettings& settings, std::string_view key, std::string_view value);
// All of them, in order, or on the first error none.
Result<> apply_settings(TenantSettings& settings, std::span<const Setting> changes);

// What is said of a value that is not allowed, by whomever it was refused.
std::unexpected<Error> not_allowed(std::string_view key, std::string_view value);

// The value as apply_setting() reads it back; "" for an unknown key.
std::string format_setting(const TenantSettings& settings, std::string_view key);
std::vector<Setting> format_settings(const TenantSettings& settings);  // every key

// "idle", "normal", "high".
std::string_view priority_name(Priority priority);

// Letters, digits, '_', '.', '-'; 1 to 63 of them; not starting with '.' or '-'.
Result<> check_tenant_name(std::string_view name);

}  // namespace gpushare
