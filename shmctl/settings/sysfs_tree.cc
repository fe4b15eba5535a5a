// SPDX-License-Identifier: Apache-2.0
#include "shmctl/settings/sysfs_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "shmctl/base/fd.h"

namespace gpushare {
namespace {

constexpr const char* kReadStep = "read sysfs";
constexpr const char* kWriteStep = "write sysfs";
constexpr std::size_t kLargestFile = 1 << 20;  // `procs` of very many processes

Result<std::string> contents(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return errno_error(kReadStep, path);
  std::string text;
  char bytes[4096];
  while (text.size() < kLargestFile) {
    const ssize_t got = ::read(fd.get(), bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(kReadStep, path);
    if (got == 0) break;
    text.append(bytes, static_cast<std::size_t>(got));
  }
  return text;
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const char* const end = std::to_address(text.end());
  const auto [rest, error] = std::from_chars(std::to_address(text.begin()), end, value);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return value;
}

std::unexpected<Error> no_such_tenant(std::string_view name) {
  return make_error(std::errc::no_such_file_or_directory, "find tenant",
                    fmt::format("there is no tenant '{}'", name));
}

bool is_refusal(const Error& error) {
  return error.code == std::errc::invalid_argument || error.code == std::errc::result_out_of_range;
}

// True for the errors that the kernel gives when a tenant is removed while its file is open.
bool is_gone(const Error& error) {
  return error.code == std::errc::no_such_file_or_directory ||
         error.code == std::errc::no_such_device;
}

// Lines of "GPU QUOTA PERIOD"; others are left out.
std::map<std::string, Cap> gpu_caps_of(std::string_view text) {
  std::map<std::string, Cap> caps;
  while (!text.empty()) {
    const std::string_view line = first_line(text);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t blank = std::min(line.find(' '), line.size());
    TenantSettings scratch;
    if (apply_setting(scratch, "max", line.substr(std::min(blank + 1, line.size()))) && scratch.cap)
      caps[std::string(line.substr(0, blank))] = *scratch.cap;
  }
  return caps;
}

}  // namespace

std::string to_sysfs(const TenantSettings& settings, std::string_view key) {
  if (key == "max" && settings.cap)
    return fmt::format("{} {}", settings.cap->quota.count(), settings.cap->period.count());
  return format_setting(settings, key);
}

std::string from_sysfs(std::string_view key, std::string_view text) {
  if (key == "max" && text.starts_with("max ")) return "max";
  return std::string(text);
}

std::string SysfsTree::file(std::string_view tenant, std::string_view name) const {
  return fmt::format("{}/tenants/{}/{}", root_, tenant, name);
}

bool SysfsTree::is_there() const { return ::access((root_ + "/tenants").c_str(), F_OK) == 0; }

bool SysfsTree::has(std::string_view tenant) const {
  return check_tenant_name(tenant) && ::access(file(tenant, "").c_str(), F_OK) == 0;
}

bool SysfsTree::may_write(std::string_view tenant, std::span<const Setting> settings) const {
  return std::ranges::all_of(settings, [&](const Setting& setting) {
    return ::access(file(tenant, setting.key).c_str(), W_OK) == 0;
  });
}

bool SysfsTree::may_write_procs(std::string_view tenant) const {
  return ::access(file(tenant, "procs").c_str(), W_OK) == 0;
}

bool SysfsTree::may_create() const { return ::access((root_ + "/create").c_str(), W_OK) == 0; }

Result<std::vector<std::string>> SysfsTree::tenants() const {
  std::vector<std::string> names;
  if (auto added = add_tenants("", names); !added) return std::unexpected(added.error());
  std::ranges::sort(names);
  return names;
}

// Adds those right below `above`, and below them.
Result<> SysfsTree::add_tenants(const std::string& above, std::vector<std::string>& names) const {
  const std::string path = root_ + "/tenants/" + above;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  if (!directory) return errno_error(kReadStep, path);
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = above + entry->d_name;
    if (entry->d_type != DT_DIR || !check_tenant_name(name)) continue;
    names.push_back(name);
    (void)add_tenants(name + '/', names);  // what goes meanwhile has none below it
  }
  return {};
}

Result<SysfsTenant> SysfsTree::read(std::string_view tenant) const {
  if (!has(tenant)) return no_such_tenant(tenant);
  SysfsTenant found;
  for (const std::string_view key : setting_keys()) {
    const auto text = contents(file(tenant, key));
    if (!text && is_gone(text.error()) && !has(tenant)) return no_such_tenant(tenant);
    if (!text) return std::unexpected(text.error());
    TenantSettings with = found.settings;
    if (apply_setting(with, key, from_sysfs(key, first_line(*text)))) found.settings = with;
  }
  if (const auto glob = contents(file(tenant, "match_cgroup")))
    found.match_cgroup = first_line(*glob);
  if (const auto uid = contents(file(tenant, "match_uid")))
    found.match_uid = number<uid_t>(first_line(*uid));
  if (const auto freeze = contents(file(tenant, "freeze")))
    found.is_frozen = first_line(*freeze) == "1";
  if (const auto caps = contents(file(tenant, "gpu_max"))) found.gpu_caps = gpu_caps_of(*caps);
  return found;
}

Result<std::vector<pid_t>> SysfsTree::procs(std::string_view tenant) const {
  if (!has(tenant)) return no_such_tenant(tenant);
  std::vector<pid_t> pids;
  const auto text = contents(file(tenant, "procs"));
  if (!text) return std::unexpected(text.error());
  for (std::string_view rest = *text; !rest.empty();) {
    const std::string_view line = first_line(rest);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (const auto pid = number<pid_t>(line); pid && *pid > 0) pids.push_back(*pid);
  }
  return pids;
}

std::optional<uint64_t> SysfsTree::counter(std::string_view tenant, const char* name) const {
  const auto text = contents(file(tenant, name));
  return text ? number<uint64_t>(first_line(*text)) : std::nullopt;
}

std::optional<uint64_t> SysfsTree::counter(std::string_view tenant, const char* name,
                                           std::string_view line, std::string_view key) const {
  const auto text = contents(file(tenant, name));
  if (!text) return std::nullopt;
  for (std::string_view rest = *text; !rest.empty();) {
    std::string_view found = first_line(rest);
    rest.remove_prefix(std::min(rest.size(), found.size() + 1));
    if (!found.starts_with(line)) continue;
    const std::size_t at = found.find(key, line.size());
    if (at == std::string_view::npos) return std::nullopt;
    found.remove_prefix(at + key.size());
    return number<uint64_t>(found.substr(0, found.find(' ')));
  }
  return std::nullopt;
}

std::optional<uint64_t> SysfsTree::generation() const {
  const auto text = contents(root_ + "/generation");
  return text ? number<uint64_t>(first_line(*text)) : std::nullopt;
}

std::optional<uint32_t> SysfsTree::instance() const {
  const auto text = contents(root_ + "/instance");
  return text ? number<uint32_t>(first_line(*text)) : std::nullopt;
}

Result<std::string> SysfsTree::text(const char* name) const {
  const auto text = contents(root_ + "/" + name);
  if (!text) return std::unexpected(text.error());
  return std::string(first_line(*text));
}

// The kernel takes a value only in one write(). An empty `tenant` means a file of the root.
Result<> SysfsTree::write_file(std::string_view tenant, std::string_view name,
                               std::string_view value) const {
  const std::string path = tenant.empty() ? fmt::format("{}/{}", root_, name) : file(tenant, name);
  const Fd fd(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (!fd.is_open()) return errno_error(kWriteStep, path);
  const std::string line = fmt::format("{}\n", value);
  ssize_t written = -1;
  do {
    written = ::write(fd.get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return errno_error(kWriteStep, path);
  if (static_cast<std::size_t>(written) != line.size())
    return make_error(std::errc::io_error, kWriteStep, path);
  return {};
}

Result<> SysfsTree::write(std::string_view tenant, std::span<const Setting> settings) {
  if (!has(tenant)) return no_such_tenant(tenant);
  TenantSettings scratch;
  if (auto valid = apply_settings(scratch, settings); !valid) return valid;
  for (const Setting& setting : settings) {
    TenantSettings one;
    if (auto valid = apply_setting(one, setting.key, setting.value); !valid) return valid;
    const auto done = write_file(tenant, setting.key, to_sysfs(one, setting.key));
    if (done) continue;
    if (is_refusal(done.error())) return not_allowed(setting.key, setting.value);
    if (is_gone(done.error()) && !has(tenant)) return no_such_tenant(tenant);
    return done;
  }
  return {};
}

Result<> SysfsTree::write_match_cgroup(std::string_view tenant, std::string_view glob) {
  auto done = write_file(tenant, "match_cgroup", glob);
  if (!done && is_refusal(done.error()))
    return make_error(std::errc::invalid_argument, "rule of a tenant",
                      fmt::format("match_cgroup: '{}' is not allowed; allowed: a glob of at most "
                                  "255 characters that starts with / or *",
                                  glob));
  return done;
}

Result<> SysfsTree::write_freeze(std::string_view tenant, bool is_frozen) {
  if (!has(tenant)) return no_such_tenant(tenant);
  return write_file(tenant, "freeze", is_frozen ? "1" : "0");
}

Result<> SysfsTree::write_match_uid(std::string_view tenant, std::optional<uid_t> uid) {
  return write_file(tenant, "match_uid", uid ? std::to_string(*uid) : "");
}

Result<> SysfsTree::attach(pid_t pid, std::string_view tenant) {
  if (!has(tenant)) return no_such_tenant(tenant);
  auto done = write_file(tenant, "procs", std::to_string(pid));
  if (!done && done.error().code == std::errc::no_such_process)
    return make_error(std::errc::no_such_process, "find process",
                      fmt::format("there is no process {}", pid));
  if (!done && is_gone(done.error()) && !has(tenant)) return no_such_tenant(tenant);
  return done;
}

Result<bool> SysfsTree::create(std::string_view tenant) {
  if (auto valid = check_tenant_name(tenant); !valid) return std::unexpected(valid.error());
  auto done = write_file("", "create", tenant);
  if (done) return true;
  if (done.error().code == std::errc::file_exists) return false;
  if (done.error().code == std::errc::no_space_on_device)
    return make_error(std::errc::no_space_on_device, "create tenant",
                      "the kernel module has no room for another tenant");
  return std::unexpected(done.error());
}

Result<> SysfsTree::remove(std::string_view tenant) {
  if (!has(tenant)) return no_such_tenant(tenant);
  auto done = write_file("", "remove", tenant);
  if (done) return {};
  if (done.error().code == std::errc::device_or_resource_busy)
    return make_error(std::errc::operation_not_permitted, "remove tenant",
                      tenant == "default"
                          ? "'default' always exists and cannot be removed"
                          : fmt::format("'{}' has tenants below it, or is below another and has "
                                        "processes or memory; remove or end those first",
                                        tenant));
  if (is_gone(done.error()) && !has(tenant)) return no_such_tenant(tenant);
  return done;
}

}  // namespace gpushare
