// SPDX-License-Identifier: Apache-2.0
#include "tools/base/scope.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "shmctl/base/cgroup.h"
#include "shmctl/base/fd.h"

namespace gpushare {
namespace {

constexpr const char* kStep = "make a scope";

bool is_systemd_init() { return ::access("/run/systemd/system", F_OK) == 0; }

Result<> by_systemd(std::span<const std::string> again) {
  std::vector<std::string> words{"systemd-run", "--scope", "--quiet", "--collect"};
  if (::geteuid() != 0) words.emplace_back("--user");
  words.emplace_back("--");
  words.insert(words.end(), again.begin(), again.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return errno_error(kStep, "start systemd-run");
}

}  // namespace

Result<> enter_scope(std::span<const std::string> again) {
  if (is_systemd_init()) return by_systemd(again);
  const auto root = cgroup2_root();
  if (!root)
    return make_error(std::errc::not_supported, kStep,
                      "systemd does not run this machine, and no cgroup of version 2 is mounted "
                      "(mount -t cgroup2 none /sys/fs/cgroup)");
  std::ifstream file("/proc/self/cgroup");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::string own = cgroup_path(text);
  if (own == "/") own.clear();
  const std::string folder =
      *root + own + std::string(kScopePrefix) + std::to_string(::getpid()) + ".scope";
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
    return errno_error(kStep, folder + " (without systemd this takes root)");
  const Fd members(::open((folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  if (!members.is_open() || ::write(members.get(), "0", 1) != 1) {
    auto error = errno_error(kStep, folder);
    ::rmdir(folder.c_str());
    return error;
  }
  return {};
}

}  // namespace gpushare
