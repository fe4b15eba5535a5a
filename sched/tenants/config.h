// SPDX-License-Identifier: Apache-2.0
// The configuration file (/etc/gpushare/gpushare.toml; sched/gpushare.toml.example shows every
// key). Text goes in, and a plain value comes out, or every mistake in the text. The agent reads it
// at its start and on reload, on its one thread; nothing is kept, and nothing but the file is
// touched.
#pragma once

#include <cstdint>
#include <expected>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "sched/policy/entry.h"
#include "sched/tenants/rules.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/log.h"
#include "shmctl/settings/tenant_settings.h"

namespace gpushare {

struct AgentConfig {
  LogLevel log_level = LogLevel::kInfo;
  Nanos tick_fast = std::chrono::milliseconds(2);
  Nanos tick_slow = std::chrono::milliseconds(100);
  // Where the agent keeps what the policy `slo` finds of programs; empty: nowhere.
  std::string knees = "/var/lib/gpushare/knees.json";
  // Where it keeps the jobs that have finished; empty: nowhere; none: kDefaultJobs, and nowhere for
  // simulated GPUs.
  std::optional<std::string> jobs{};
  // Where it keeps who used the GPUs (shmctl/usage): as `jobs`, the most bytes, and whether every
  // user may read it.
  std::optional<std::string> usage{};
  uint64_t usage_bytes = 64ULL << 20;
  bool is_usage_for_all = true;
  static constexpr const char* kDefaultUsage = "/var/lib/gpushare/usage.db";
  static constexpr const char* kDefaultJobs = "/var/lib/gpushare/jobs.csv";
  bool gangs = true;  // jobs on several GPUs have their time on all of them at once
};

struct GpuConfig {
  PolicyChoice policy;
  bool is_spatial = false;   // sharing = "spatial"; otherwise by time
  bool has_credit = false;   // gate = "credit": launches that are in line wait on the GPU, too
  bool has_overlap = false;  // overlap = true: tenants without sm_percent run at once, on one set

  bool operator==(const GpuConfig&) const = default;
};

// NVIDIA's MPS for the GPUs that are shared spatially.
struct MpsConfig {
  bool is_ours = true;        // the agent starts and watches it; otherwise whoever wants it does
  bool has_all_users = true;  // one server for the clients of all users; otherwise of one at a time
  std::string program;        // empty: nvidia-cuda-mps-control, in $PATH

  bool operator==(const MpsConfig&) const = default;
};

struct TenantConfig {
  std::string name;
  std::vector<Setting> settings;  // as written, each already accepted by apply_setting()
};

// What the set of tenants is made of.
struct TenantsConfig {
  std::vector<TenantConfig> tenants{};  // in file order
  std::vector<Rule> rules{};            // in file order; each names one of `tenants`
};

struct Config : TenantsConfig {
  // Everything at its default: the first of the policies on every GPU.
  explicit Config(std::span<const PolicyEntry> policies)
      : other_gpus{.policy = PolicyChoice(policies.front())} {}

  const GpuConfig& gpu(uint32_t index) const {
    const auto own = gpus.find(index);
    return own == gpus.end() ? other_gpus : own->second;
  }
  // Of the policies on the first `count` GPUs: "fair", or several as in "fair-slo".
  std::string policy_names(std::size_t count) const;

  AgentConfig agent{};
  GpuConfig other_gpus;                  // those that `gpus` does not name
  std::map<uint32_t, GpuConfig> gpus{};  // by index
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

// Total on any bytes. `file` is only for the messages. `policies`: at least one; the result refers
// to them.
std::expected<Config, ConfigErrors> parse_config(std::string_view text, std::string_view file,
                                                 std::span<const PolicyEntry> policies);

// Reads at most 1 MiB. A missing file is one error with code no_such_file_or_directory.
std::expected<Config, ConfigErrors> load_config(const std::string& path,
                                                std::span<const PolicyEntry> policies);

}  // namespace gpushare
