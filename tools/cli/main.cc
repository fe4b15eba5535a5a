// SPDX-License-Identifier: Apache-2.0
// gpushare: the command line of the project.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <exception>
#include <utility>

#include "tools/base/cli_args.h"
#include "tools/base/report.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"

namespace gpushare {
namespace {

using CommandFunction = ExitCode (*)(const Invocation&);
constexpr std::array<std::pair<std::string_view, CommandFunction>, 15> kCommands{{
    {"run", command_run},
    {"status", command_status},
    {"tenants", command_tenants},
    {"set", command_set},
    {"remove", command_remove},
    {"attach", command_attach},
    {"freeze", command_freeze},
    {"thaw", command_thaw},
    {"trace", command_trace},
    {"profile", command_profile},
    {"preload", command_preload},
    {"doctor", command_doctor},
    {"recover", command_recover},
    {"version", command_version},
    {"completion", command_completion},
}};

ExitCode dispatch(const Invocation& invocation) {
  for (const auto& [name, function] : kCommands)
    if (name == invocation.command->name) return function(invocation);
  std::unreachable();  // a test runs every command of the spec
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) try {
  using namespace gpushare;
  const auto invocation = parse_args(gpushare_spec(), argc, argv);
  if (invocation) return finish_output(dispatch(*invocation));
  const Stop& stop = invocation.error();
  fmt::print(stop.code == kExitOk ? stdout : stderr, "{}", stop.text);
  return finish_output(stop.code);
} catch (const std::exception& error) {  // out of memory, or a defect of ours
  std::fprintf(stderr, "gpushare: %s\n", error.what());
  return gpushare::kExitFailure;
}
