// SPDX-License-Identifier: Apache-2.0
// The settings of a tenant and the one parser of them in user space: the configuration file, the
// control socket and the command line all hand their strings to apply_setting(). Which settings
// there are, with their ranges and defaults, stands in one table, kmod/uapi/settings.h, which the
// kernel module shares. Beside that table, this parser's grammar is:
//
//   max         "max", "N%" (at most 3 decimals, of a period of 100 ms), or "QUOTA PERIOD" in us
//   memory_max  "max", or a number of bytes with an optional suffix K or KiB (1024), M, G or T;
//   with
//               one, the number may have 3 decimals
//   slo_us      microseconds, or a number with 3 decimals at most and us, ms or s: "1.5ms"
//   sm_percent  "max", or a number. It sizes the tenant's partition on a GPU that is shared
//               spatially and can change while programs run; with a target time it is an upper
//               bound.
//   sm_min      a number. Its partition is never smaller, so that kernels whose blocks wait for
//               each other end in it.
//
// Plain values without I/O; any thread may call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kmod/uapi/settings.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

// GPU time per period: 1 ms <= quota <= period, 1 ms <= period <= 1 s.
struct Cap {
  Micros quota{GPUSHARE_PERIOD_US_DEFAULT};
  Micros period{GPUSHARE_PERIOD_US_DEFAULT};

  // The cap as a part of the GPU's time: above 0 and at most 1.
  double fraction() const { return static_cast<double>(quota.count()) / period.count(); }
  // A cap of the whole GPU is none: whatever a tenant uses, it is never frozen for it.
  bool binds() const { return quota < period; }
  bool operator==(const Cap&) const = default;
};

struct TenantSettings {
  uint32_t weight = GPUSHARE_WEIGHT_DEFAULT;
  Priority priority = static_cast<Priority>(GPUSHARE_PRIORITY_DEFAULT);
  std::optional<Cap> cap;                             // nullopt stands for "max"
  std::optional<uint64_t> memory_max;                 // bytes; nullopt stands for "max"
  std::optional<uint32_t> sm_percent;                 // 1 to 100; nullopt stands for "max"
  Micros slo{GPUSHARE_SLO_US_DEFAULT};                // target time of one iteration; 0 means none
  Micros length{GPUSHARE_LENGTH_US_DEFAULT};          // GPU time of one job, alone; 0 means unknown
  uint64_t iterations = GPUSHARE_ITERATIONS_DEFAULT;  // of one job in all; 0 means unknown
  TenantPhase phase = static_cast<TenantPhase>(GPUSHARE_PHASE_DEFAULT);
  TenantGang gang = static_cast<TenantGang>(GPUSHARE_GANG_DEFAULT);
  uint32_t sm_min = GPUSHARE_SM_MIN_DEFAULT;       // percent; 0 means none
  bool sm_shown = GPUSHARE_SM_SHOWN_DEFAULT != 0;  // programs are shown their partition

  bool operator==(const TenantSettings&) const = default;
};

// One setting as it is written: a key of the table and a value in its grammar.
struct Setting {
  std::string key;
  std::string value;

  bool operator==(const Setting&) const = default;
};

// One row of the table, for help texts and lists.
struct SettingHelp {
  std::string_view key;      // "weight"
  std::string_view value;    // what stands for a value in help: "N"
  std::string_view allowed;  // what a value may be, for a person: "1 to 10000"
  std::string_view initial;  // the default as it is written: "100"
  std::string_view about;    // what the setting means, in one sentence without its full stop
};

// All settings, in the order of the table.
std::span<const SettingHelp> settings_help();
// Their keys alone, in the same order.
std::span<const std::string_view> setting_keys();
// What a value of `key` may be, for a person ("1 to 10000"). Empty for an unknown key.
std::string_view allowed_values(std::string_view key);

// Parses `value`, which has no blanks around it, and sets the one member that `key` names. On error
// `settings` stays as it was, the code is invalid_argument, and the detail names the key, the value
// and what is allowed.
Result<> apply_setting(TenantSettings& settings, std::string_view key, std::string_view value);
// Applies all changes in order; on the first error it applies none of them.
Result<> apply_settings(TenantSettings& settings, std::span<const Setting> changes);

// The error that names a value which is not allowed, whichever program refused it.
std::unexpected<Error> not_allowed(std::string_view key, std::string_view value);

// The value of `key` as apply_setting() reads it back; "" for an unknown key.
std::string format_setting(const TenantSettings& settings, std::string_view key);
// All settings with their values, in the order of the table.
std::vector<Setting> format_settings(const TenantSettings& settings);

// "idle", "normal" or "high"; "unknown" for a number that is none of them.
std::string_view priority_name(Priority priority);
// "auto", "prefill", "decode" or "none"; "unknown" for a number that is none of them.
std::string_view phase_name(TenantPhase phase);

// A name is a path of 1 to 4 parts with a '/' between them, "team/job", and has at most 63
// characters. A part has letters, digits, '_', '.' and '-', and does not start with '.' or '-'. Any
// other name gives the error invalid_argument.
Result<> check_tenant_name(std::string_view name);
// The name of the tenant right above "team/job" in the tree: "team". Empty: it is at the top.
std::string_view name_above(std::string_view name);

}  // namespace gpushare
