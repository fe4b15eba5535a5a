// SPDX-License-Identifier: Apache-2.0
#include "sched/kept/roster_store.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "sched/kept/roster_text.h"
#include "shmctl/base/log.h"
#include "shmctl/program/state_file.h"

namespace gpushare {
namespace {

constexpr std::size_t kMostBytes = 16 << 20;

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

Result<> check_owner(const std::string& path) {
  struct stat file{};
  if (::stat(path.c_str(), &file) != 0) return errno_error("read what was set at run time", path);
  const bool is_ours = file.st_uid == 0 || file.st_uid == ::geteuid();
  if (is_ours && (file.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return make_error(std::errc::operation_not_permitted, "read what was set at run time",
                    fmt::format("{} belongs to uid {} and has mode {:04o}: others may have changed "
                                "it",
                                path, file.st_uid, file.st_mode & 07777));
}

Result<ParsedRoster> read(const std::string& path) {
  if (const auto checked = check_owner(path); !checked) return std::unexpected(checked.error());
  const auto text = read_state_file(path, kMostBytes);
  if (!text) return std::unexpected(text.error());
  return parse_roster(*text, boot_id());
}

// For its owner to look at: the next agent writes the file anew.
void keep_bad(const std::string& path) {
  const std::string bad = path + ".bad";
  if (std::rename(path.c_str(), bad.c_str()) == 0)
    log_warning("the file is kept as {}", bad);
  else
    log_warning("{}", errno_error("set aside", path).error().message());
}

}  // namespace

std::optional<Roster::Copy> RosterStore::take_text() {
  if (!take_save_request()) return std::nullopt;
  saved_ = roster_->generation();
  return roster_->copy();
}

Result<> RosterStore::write(const std::string& path, const Roster::Copy& roster) {
  return replace_state_file(path, roster_text(roster, boot_id()), 0600);
}

Result<bool> take_kept_roster(const std::string& path, Roster& roster) {
  if (path.empty() || (::access(path.c_str(), F_OK) != 0 && errno == ENOENT)) return false;
  auto parsed = read(path);
  if (!parsed) {
    keep_bad(path);
    return std::unexpected(parsed.error());
  }
  const Roster::Copy& kept = parsed->roster;
  for (const auto& [slot, tenant] : kept.tenants) roster.put_tenant(slot, tenant);
  for (const RosterProcess& process : kept.processes)
    if (const auto put = roster.put_process(process); !put)
      parsed->left_out.push_back(put.error().message());
  for (const auto& [cgroup, slot] : kept.scopes)
    if (const auto put = roster.put_scope(cgroup, slot); !put)
      parsed->left_out.push_back(put.error().message());
  roster.set_tenants_in_sysfs(kept.head.are_tenants_in_sysfs != 0, kept.head.module_instance);
  for (const std::string& why : parsed->left_out) log_warning("{}: {}", path, why);
  if (!parsed->left_out.empty()) keep_bad(path);
  return true;
}

Result<> forget_kept_roster(const std::string& path) {
  if (path.empty() || ::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return errno_error("forget what was set at run time", path);
}

}  // namespace gpushare
