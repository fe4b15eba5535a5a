// SPDX-License-Identifier: Apache-2.0
// The configuration file (/etc/gpushare/gpushare.toml; sched/gpushare.toml.example shows every
// key). Text in, a plain value out, or every mistake in it. Read by the agent at its start and on
// reload; keeps nothing, touches nothing but the file.
#pragma once

#include <cstdint>
#include <expected>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "sched/policy/policy.h"
#include "sched/tenants/rules.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/log.h"
#include "shmctl/settings/tenant_settings.h"

namespace gpushare {

struct AgentConfig {
  LogLevel log_level = LogLevel::kInfo;
  Nanos tick_fast{2'000'000};
  Nanos tick_slow{100'000'000};
  std::string policy = "fair";
  PolicyOptions policy_options;
  std::string knees = "/var/lib/gpushare/knees.json";  // kept across runs; empty: not kept
};

// NVIDIA's MPS for the GPUs that are shared spatially.
struct MpsConfig {
  bool is_ours = true;        // started and watched by the agent; else whoever wants it starts it
  bool has_all_users = true;  // one server for the clients of all users; else of one at a time
  std::string program;        // empty: nvidia-cuda-mps-control, in $PATH

  bool operator==(const MpsConfig&) const = default;
};

struct TenantConfig {
  std::string name;
  std::vector<Setting> settings;  // as written, each already accepted by apply_setting()
};

struct Config {
  AgentConfig agent;
  std::set<uint32_t> spatial_gpus{};  // by index; the others share by time
  std::set<uint32_t> slo_gpus{};      // of these, those divided by target times
  std::vector<TenantConfig> tenants;  // in file order
  std::vector<Rule> rules;            // in file order; each names one of `tenants`
  MpsConfig mps{};
};

// One mistake. message(): "gpushare.toml:12:10: tenant.batch.weight: '0' is not allowed; ..."
struct ConfigError {
  std::string file;
  uint32_t line = 0, column = 0;  // from 1; 0: about the file as a whole
  std::string key;                // "tenant.batch.weight"; empty for a syntax error
  std::string text;
  std::error_code code = std::make_error_code(std::errc::invalid_argument);

  std::string message() const;
};

// All mistakes in the order of the file, at least one. A syntax error ends the reading, so it is
// alone.
using ConfigErrors = std::vector<ConfigError>;

// Total on any bytes. `file` is only for the messages.
std::expected<Config, ConfigErrors> parse_config(std::string_view text, std::string_view file);

// Reads at most 1 MiB. A missing file is one error with code no_such_file_or_directory.
std::expected<Config, ConfigErrors> load_config(const std::string& path);

}  // namespace gpushare
