// SPDX-License-Identifier: Apache-2.0
// SysfsTree: the kernel module's files of tenants and settings below /sys/kernel/gpushare. It is
// the only code that reads and writes them; the agent and the command line use it. Values have the
// grammar of tenant_settings.h in both directions, and a value that the kernel refuses gives the
// same error message as one that this parser refuses.
//
// Each call opens the files that it needs and keeps nothing, so any thread may call. attach(),
// create() and remove() are virtual because the plain directory that tests use does nothing by
// itself when something is written to those files.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/settings/tenant_settings.h"

namespace gpushare {

// What the directory of one tenant holds.
struct SysfsTenant {
  TenantSettings settings;
  std::string match_cgroup;        // a glob; empty means that there is no such rule
  std::optional<uid_t> match_uid;  // nullopt means that there is no such rule
  bool is_frozen = false;          // its processes are to stand still
  // Of single GPUs, by UUID or gpuN with RM's device instance N.
  std::map<std::string, Cap> gpu_caps;

  bool operator==(const SysfsTenant&) const = default;
};

class SysfsTree {
 public:
  explicit SysfsTree(std::string root) : root_(std::move(root)) {}
  virtual ~SysfsTree() = default;

  const std::string& root() const { return root_; }
  // False when the module is not loaded.
  bool is_there() const;
  bool has(std::string_view tenant) const;
  // The next three return true when the caller has the permission to write: all of these settings
  // of the tenant; its `procs`; the root's `create`.
  bool may_write(std::string_view tenant, std::span<const Setting> settings) const;
  bool may_write_procs(std::string_view tenant) const;
  bool may_create() const;

  // --- reading. A tenant that does not exist gives the error no_such_file_or_directory.
  // The names of all tenants of the tree, sorted: one that is above others comes before them.
  Result<std::vector<std::string>> tenants() const;
  // A value that a later module writes and this parser does not understand counts as its default.
  Result<SysfsTenant> read(std::string_view tenant) const;
  // A read-only counter ("gpu_time_us"); nullopt when there is no such tenant or file.
  std::optional<uint64_t> counter(std::string_view tenant, const char* name) const;
  // A number of a file with several lines: that behind `key` in the line that begins with `line`.
  // With an empty key it is that behind `line`: counter("a", "stat", "nr_periods ").
  std::optional<uint64_t> counter(std::string_view tenant, const char* name, std::string_view line,
                                  std::string_view key = {}) const;
  // The processes of the tenant itself, in the caller's pid namespace. Lines that are no pid are
  // left out.
  Result<std::vector<pid_t>> procs(std::string_view tenant) const;
  // A number that every change of settings, tenants and attachments increases; nullopt when this
  // module has none.
  std::optional<uint64_t> generation() const;
  // A number that the module draws whenever it is loaded, never 0; nullopt when this module has
  // none.
  std::optional<uint32_t> instance() const;
  // The first line of a file directly below the root: "driver", "agent", "version".
  Result<std::string> text(const char* name) const;

  // --- writing. The error invalid_argument says what is allowed, permission_denied names the file.
  // All settings are checked before the first one is written.
  Result<> write(std::string_view tenant, std::span<const Setting> settings);
  // An empty glob and nullopt take the rule away.
  Result<> write_match_cgroup(std::string_view tenant, std::string_view glob);
  Result<> write_match_uid(std::string_view tenant, std::optional<uid_t> uid);
  Result<> write_freeze(std::string_view tenant, bool is_frozen);
  // Error no_such_process when there is no such process.
  virtual Result<> attach(pid_t pid, std::string_view tenant);
  // Returns whether it was made by this call: a tenant that exists already is no error.
  virtual Result<bool> create(std::string_view tenant);
  virtual Result<> remove(std::string_view tenant);

 protected:
  std::string file(std::string_view tenant, std::string_view name) const;

 private:
  Result<> add_tenants(const std::string& above, std::vector<std::string>& names) const;
  Result<> write_file(std::string_view tenant, std::string_view name, std::string_view value) const;

  std::string root_;
};

// Translate a value to and from the kernel's grammar, which differs from that of tenant_settings.h
// only for `max`: "30%" is "30000 100000" there, and its "max 100000" is "max" here. to_sysfs() is
// empty for an unknown key.
std::string to_sysfs(const TenantSettings& settings, std::string_view key);
std::string from_sysfs(std::string_view key, std::string_view text);

}  // namespace gpushare
