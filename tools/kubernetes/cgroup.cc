// SPDX-License-Identifier: Apache-2.0
#include "tools/kubernetes/cgroup.h"

#include <algorithm>
#include <cctype>

namespace gpushare {
namespace {

// A UID comes from the API server, and a static pod's is an annotation: neither may lead elsewhere.
bool is_uid(std::string_view uid) {
  const auto is_allowed = [](unsigned char c) { return std::isalnum(c) || c == '-'; };
  return !uid.empty() && uid.size() <= 64 && std::ranges::all_of(uid, is_allowed);
}

// systemd names a slice by all that are around it: a.slice/a-b.slice/a-b-c.slice.
std::string slices(const std::vector<std::string>& parts) {
  std::string path, name;
  for (std::string part : parts) {
    std::ranges::replace(part, '-', '_');
    name += (name.empty() ? "" : "-") + part;
    path += "/" + name + ".slice";
  }
  return path;
}

}  // namespace

std::optional<CgroupDriver> parse_cgroup_driver(std::string_view word) {
  if (word == "auto") return CgroupDriver::kEither;
  if (word == "cgroupfs") return CgroupDriver::kCgroupfs;
  if (word == "systemd") return CgroupDriver::kSystemd;
  return std::nullopt;
}

std::vector<std::string> pod_cgroups(const Pod& pod, CgroupDriver driver, std::string_view root) {
  if (!is_uid(pod.uid)) return {};
  std::vector<std::string> parts;
  while (!root.empty()) {
    const std::string_view part = root.substr(0, root.find('/'));
    if (!part.empty()) parts.emplace_back(part);
    root.remove_prefix(std::min(root.size(), part.size() + 1));
  }
  parts.emplace_back("kubepods");
  if (pod.qos == "Burstable") parts.emplace_back("burstable");
  if (pod.qos == "BestEffort" || pod.qos.empty()) parts.emplace_back("besteffort");
  parts.push_back("pod" + pod.uid);
  std::vector<std::string> paths;
  if (driver != CgroupDriver::kSystemd) {
    paths.emplace_back();
    for (const std::string& part : parts) paths.back() += "/" + part;
  }
  if (driver != CgroupDriver::kCgroupfs) paths.push_back(slices(parts));
  return paths;
}

}  // namespace gpushare
