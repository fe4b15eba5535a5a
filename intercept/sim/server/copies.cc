// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/server/copies.h"

#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace gpushare::sim {
namespace {

template <class Number>
bool parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

template <class Fn>
void for_each_in(const std::filesystem::path& folder, const Fn& fn) {
  std::error_code error;
  for (auto at = std::filesystem::directory_iterator(folder, error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error))
    fn(at->path());
}

}  // namespace

std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  for_each_in("/proc", [&](const std::filesystem::path& entry) {
    if (pid_t pid = 0; parse(entry.filename().string(), pid)) pids.push_back(pid);
  });
  return pids;
}

std::set<uint64_t> sockets_of(pid_t pid) {
  constexpr std::string_view kSocket = "socket:[";
  std::set<uint64_t> inodes;
  for_each_in("/proc/" + std::to_string(pid) + "/fd", [&](const std::filesystem::path& entry) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry, error).string();
    uint64_t inode = 0;
    if (!error && target.starts_with(kSocket) && target.ends_with(']') &&
        parse(std::string_view(target).substr(kSocket.size(), target.size() - kSocket.size() - 1),
              inode))
      inodes.insert(inode);
  });
  return inodes;
}

}  // namespace gpushare::sim
