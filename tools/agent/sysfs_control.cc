// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/sysfs_control.h"

#include <vector>

namespace gpushare {
namespace {

// What names something that is not there is a wrong request, and its detail says all of it.
Result<> as_of_the_agent(const Result<>& done) {
  if (done) return done;
  const Error& error = done.error();
  const bool is_usage = error.code == std::errc::invalid_argument ||
                        error.code == std::errc::no_such_file_or_directory ||
                        error.code == std::errc::no_such_process;
  if (!is_usage || error.detail.empty()) return done;
  return make_error(std::errc::invalid_argument, "sysfs", error.detail);
}

std::optional<Result<>> set(SysfsTree& tree, const Request& request) {
  std::vector<Setting> settings;
  settings.reserve(request.settings.size());
  for (const auto& [key, value] : request.settings) settings.push_back({key, value});
  TenantSettings scratch;
  if (auto valid = apply_settings(scratch, settings); !valid) return valid;
  const bool is_new = !tree.has(request.tenant);
  if (is_new && request.create.value_or(false)) {
    if (!tree.may_create()) return std::nullopt;
    const auto made = tree.create(request.tenant);
    if (!made) return std::unexpected(made.error());
    auto written = tree.write(request.tenant, settings);
    if (written || !*made) return written;             // somebody else may have made it meanwhile
    const auto removed = tree.remove(request.tenant);  // nothing half done
    return removed ? written : removed;
  }
  if (!is_new && !tree.may_write(request.tenant, settings)) return std::nullopt;
  return tree.write(request.tenant, settings);
}

std::optional<Result<>> change(SysfsTree& tree, const Request& request) {
  if (!tree.is_there()) return std::nullopt;
  if (request.op == "set") return set(tree, request);
  if (request.op == "remove") {
    if (!tree.may_create()) return std::nullopt;  // `create` and `remove` are one right
    return tree.remove(request.tenant);
  }
  if (request.op == "attach" && request.pid) {
    if (tree.has(request.tenant) && !tree.may_write_procs(request.tenant)) return std::nullopt;
    return tree.attach(*request.pid, request.tenant);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Result<>> change_in_sysfs(SysfsTree& tree, const Request& request) {
  auto done = change(tree, request);
  if (!done) return std::nullopt;
  return as_of_the_agent(*done);
}

}  // namespace gpushare
