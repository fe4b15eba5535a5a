// SPDX-License-Identifier: Apache-2.0
// SysfsTree: the kernel module's files of tenants and settings below /sys/kernel/gpushare. The one
// place that reads and writes them; the agent and the command line use it. Values come and go in
// the grammar of tenant_settings.h; what the kernel refuses comes back in the words of that parser.
//
// Each call opens the files it needs and keeps nothing, so any thread may call. Making and removing
// are virtual because a plain directory, which is what tests have, does not do them by itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/settings/tenant_settings.h"

namespace gpushare {

// The directory of one tenant.
struct SysfsTenant {
  TenantSettings settings;
  std::string match_cgroup;  // glob, empty: no such rule
  std::optional<uid_t> match_uid;

  bool operator==(const SysfsTenant&) const = default;
};

class SysfsTree {
 public:
  explicit SysfsTree(std::string root) : root_(std::move(root)) {}
  virtual ~SysfsTree() = default;

  const std::string& root() const { return root_; }
  // False: the module is not loaded.
  bool is_there() const;
  bool has(std::string_view tenant) const;
  // May the caller write these settings of the tenant?
  bool may_write(std::string_view tenant, std::span<const Setting> settings) const;
  bool may_write_procs(std::string_view tenant) const;
  bool may_create() const;

  // --- reading. Errors no_such_file_or_directory for a tenant that is not there.
  Result<std::vector<std::string>> tenants() const;  // by name
  // A value that cannot be understood (of a later module) counts as its default.
  Result<SysfsTenant> read(std::string_view tenant) const;
  // A read-only counter ("gpu_time_us"); nullopt: no such tenant, or no such file.
  std::optional<uint64_t> counter(std::string_view tenant, const char* name) const;
  // Empty lines and what is no pid are passed over. In the caller's pid namespace.
  Result<std::vector<pid_t>> procs(std::string_view tenant) const;
  // Moves with every change of settings, tenants and attachments; nullopt: not in this module.
  std::optional<uint64_t> generation() const;
  // A file directly below the root, without its newline: "driver", "agent", "version".
  Result<std::string> text(const char* name) const;

  // --- writing. invalid_argument says what would be right, permission_denied names the file.
  // All are checked before the first is written.
  Result<> write(std::string_view tenant, std::span<const Setting> settings);
  // Empty and nullopt take a rule away.
  Result<> write_match_cgroup(std::string_view tenant, std::string_view glob);
  Result<> write_match_uid(std::string_view tenant, std::optional<uid_t> uid);
  // no_such_process when there is none.
  virtual Result<> attach(pid_t pid, std::string_view tenant);
  // One that is there already is no error.
  virtual Result<> create(std::string_view tenant);
  virtual Result<> remove(std::string_view tenant);

 protected:
  std::string file(std::string_view tenant, std::string_view name) const;

 private:
  Result<> write_file(std::string_view tenant, std::string_view name, std::string_view value) const;

  std::string root_;
};

// As the kernel writes and reads a setting: the grammar of tenant_settings.h but for `max`, where
// "30%" is "30000 100000" there and "max 100000" is "max" here. Empty for an unknown key.
std::string to_sysfs(const TenantSettings& settings, std::string_view key);
std::string from_sysfs(std::string_view key, std::string_view text);

}  // namespace gpushare
