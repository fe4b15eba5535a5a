// SPDX-License-Identifier: Apache-2.0
#include "tools/containers/cdi_spec.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "shmctl/shim/container_socket.h"

namespace gpushare {
namespace {

using Json = nlohmann::ordered_json;

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// A device's name has letters, digits, '_', '-', '.' and ':'; a tenant's has no ':'.
std::string device_name(std::string tenant) {
  std::ranges::replace(tenant, '/', ':');
  return tenant;
}

Json hook_for(const std::string& tenant, const CdiOptions& options) {
  std::vector<std::string> words{"gpushare"};
  if (!options.socket.empty()) words.push_back("--socket=" + options.socket);
  words.insert(words.end(), {"cdi", "hook", "--tenant=" + tenant});
  if (options.is_required) words.emplace_back("--required");
  return {{"hookName", "createRuntime"}, {"path", options.program}, {"args", words}};
}

Json mount_of(const std::string& path, const std::string& place) {
  return {{"hostPath", path},
          {"containerPath", place},
          {"options", {"ro", "nosuid", "nodev", "rbind"}}};
}

}  // namespace

std::string cdi_spec(const std::vector<std::string>& tenants, const CdiOptions& options,
                     std::vector<std::string>& left_out) {
  Json devices = Json::array();
  for (const std::string& tenant : tenants) {
    if (tenant.empty() || !is_alphanumeric(tenant.front()) || !is_alphanumeric(tenant.back())) {
      left_out.push_back(tenant);
      continue;
    }
    Json edits{{"hooks", Json::array({hook_for(tenant, options)})}};
    devices.push_back({{"name", device_name(tenant)}, {"containerEdits", std::move(edits)}});
  }
  Json spec{{"cdiVersion", "0.3.0"}, {"kind", kCdiKind}, {"devices", std::move(devices)}};
  const std::string socket = options.run_folder + "/shim.sock";
  if (!options.shim.empty())
    spec["containerEdits"] = {
        {"env", {"LD_PRELOAD=" + options.shim, "GPUSHARE_SHIM_SOCKET=" + socket}},
        {"mounts", Json::array({mount_of(options.shim, options.shim),
                                mount_of(container_folder(socket), options.run_folder)})}};
  return spec.dump(2) + "\n";
}

Result<pid_t> container_pid(std::string_view state) {
  constexpr const char* kRead = "read the container's state";
  const Json json = Json::parse(state, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("pid") || !json["pid"].is_number_integer())
    return make_error(std::errc::invalid_argument, kRead,
                      "standard input has none: a runtime writes it there, as a JSON object with a "
                      "process in \"pid\"");
  const auto pid = json.at("pid").get<int64_t>();
  if (pid > 1 && pid <= std::numeric_limits<pid_t>::max()) return static_cast<pid_t>(pid);
  return make_error(std::errc::invalid_argument, kRead,
                    "it names no process; the hook is for createRuntime");
}

}  // namespace gpushare
