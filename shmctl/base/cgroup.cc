// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

namespace gpushare {
namespace {

std::string next_line(std::string_view& text) {
  const std::string line(text.substr(0, text.find('\n')));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

constexpr std::size_t kIdDigits = 64;
// podman's, where it makes cgroups itself: a pod is right below it, and its containers in that.
constexpr std::string_view kPodsOfPodman = "/libpod_parent";

}  // namespace

std::optional<std::string> cgroup2_root() {
  std::ifstream file("/proc/self/mountinfo");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return cgroup2_root(text);
}

// "ID PARENT DEVICE ROOT MOUNT_POINT OPTIONS [FIELD...] - TYPE SOURCE OPTIONS"
std::optional<std::string> cgroup2_root(std::string_view mountinfo) {
  constexpr std::size_t kRoot = 3, kMountPoint = 4;
  while (!mountinfo.empty()) {
    std::istringstream line(next_line(mountinfo));
    const std::vector<std::string> words{std::istream_iterator<std::string>(line), {}};
    const auto dash = std::ranges::find(words, "-");
    if (words.size() <= kMountPoint || std::distance(dash, words.end()) < 2) continue;
    if (*(dash + 1) == "cgroup2" && words[kRoot] == "/") return words[kMountPoint];
  }
  return std::nullopt;
}

std::string cgroup_path(std::string_view text) {
  constexpr std::string_view kUnified = "0::", kNamed = ":name=systemd:";
  std::string named;
  while (!text.empty()) {
    const std::string line = next_line(text);
    if (line.starts_with(kUnified)) return line.substr(kUnified.size());
    if (const std::size_t at = line.find(kNamed); at != std::string::npos)
      named = line.substr(at + kNamed.size());
  }
  return named;
}

std::optional<std::string> container_id(std::string_view name) {
  if (name.ends_with(".scope")) name.remove_suffix(6);
  if (const std::size_t dash = name.rfind('-'); dash != std::string_view::npos)
    name.remove_prefix(dash + 1);
  if (name.size() != kIdDigits ||
      name.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return std::nullopt;
  return std::string(name);
}

std::optional<ContainerGroup> container_group(std::string_view cgroup_path) {
  for (std::size_t at = 0; at < cgroup_path.size();) {
    const std::size_t end = std::min(cgroup_path.find('/', at), cgroup_path.size());
    const std::string_view name = cgroup_path.substr(at, end - at);
    const std::string_view above = cgroup_path.substr(0, at == 0 ? 0 : at - 1);
    auto id = container_id(name);
    const bool is_pod = above == kPodsOfPodman && id == name;
    if (id && !is_pod) return ContainerGroup{std::move(*id), std::string(above), std::string(name)};
    at = end + 1;
  }
  return std::nullopt;
}

}  // namespace gpushare
