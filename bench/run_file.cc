// SPDX-License-Identifier: Apache-2.0
#include "bench/run_file.h"

#include <sys/utsname.h>

#include <cassert>
#include <ctime>
#include <fstream>

namespace gpushare::bench {
namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  return "unknown";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

}  // namespace

nlohmann::ordered_json run_without_gpu(std::string_view commit, std::string_view command) {
  utsname system{};
  ::uname(&system);
  return {{"date", today()},    {"gpu", "none"},    {"driver", "none"},  {"kernel", system.release},
          {"cpu", cpu_model()}, {"commit", commit}, {"command", command}};
}

Result<> append_run(const std::string& path, std::string_view object) {
  assert(!object.contains('\n'));
  std::ofstream file(path, std::ios::app);
  file << object << '\n';
  file.close();
  if (!file) return errno_error("add the run to the file", path);
  return {};
}

}  // namespace gpushare::bench
