// SPDX-License-Identifier: Apache-2.0
#include "tools/base/beside.h"

#include <unistd.h>

#include <filesystem>

namespace gpushare {
namespace {

// The first of these places, which are relative to the folder of this program, that is there.
std::filesystem::path first_of(std::initializer_list<const char*> places, int mode) {
  std::error_code code;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", code).parent_path();
  for (const char* place : places)
    if (const auto path = here / place; ::access(path.c_str(), mode) == 0)
      return path.lexically_normal();
  return {};
}

}  // namespace

std::string find_gpushared() {
  const std::string found = first_of({"gpushared", "../sbin/gpushared"}, X_OK);
  return found.empty() ? "gpushared" : found;
}

std::string find_simulated_driver() {
  return first_of({"../lib/sim/libcuda.so.1", "../lib/gpushare/sim/libcuda.so.1"}, R_OK)
      .parent_path();
}

}  // namespace gpushare
