// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace gpushare {
namespace {

std::string next_line(std::string_view& text) {
  const std::string line(text.substr(0, text.find('\n')));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

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

}  // namespace gpushare
