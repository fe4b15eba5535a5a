// SPDX-License-Identifier: Apache-2.0
#include "tools/base/endpoints.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "kmod/uapi/gpushare.h"
#include "shmctl/plane/region.h"

namespace gpushare {

std::vector<Option> endpoint_options() {
  return {{"socket", 0, "PATH", "The agent's control socket", "/run/gpushare/agent.sock",
           "GPUSHARE_SOCKET"},
          {"region", 0, "PATH", "The control plane; /NAME stands for /dev/shm/NAME",
           kDefaultRegionName, "GPUSHARE_REGION"}};
}

Command with_endpoints(Command program) {
  for (Option& option : endpoint_options()) program.options.push_back(std::move(option));
  return program;
}

Endpoints endpoints_of(const Invocation& invocation) {
  const char* const named = std::getenv("GPUSHARE_SYSFS");
  const bool is_usual = !invocation.has("socket") && !invocation.has("region");
  // The usual one of the two would be that of another agent than the named one.
  const bool is_one_named = invocation.has("socket") != invocation.has("region");
  const auto place = [&](const char* option) {
    return is_one_named && !invocation.has(option) ? "" : invocation.text(option);
  };
  return {place("socket"), place("region"),
          named != nullptr && *named != '\0' ? named
          : is_usual                         ? GPUSHARE_SYSFS_PATH
                                             : ""};
}

Result<std::optional<uint32_t>> gpu_option(const Invocation& invocation) {
  const auto text = invocation.value("gpu");
  if (!text) return std::nullopt;
  uint32_t number = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, failure] = std::from_chars(text->data(), end, number);
  if (failure == std::errc{} && rest == end && number < kMaxGpus) return number;
  return make_error(
      std::errc::invalid_argument, "read --gpu",
      fmt::format("--gpu takes the number of a GPU, 0 to {}, not '{}'", kMaxGpus - 1, *text));
}

}  // namespace gpushare
