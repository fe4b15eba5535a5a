// SPDX-License-Identifier: Apache-2.0
// gpushare run: tells the agent who we are about to become, then becomes it.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tools/agent/client.h"
#include "tools/base/endpoints.h"
#include "tools/base/preload.h"
#include "tools/base/report.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"

namespace gpushare {
namespace {

Request run_request(const Invocation& invocation) {
  Request request{.op = "run", .tenant = invocation.value("tenant").value_or("")};
  for (std::string_view key : setting_keys_of_run())
    if (auto value = invocation.value(setting_option(key)))
      request.settings.emplace_back(key, *value);
  return request;
}

// The library goes before what is preloaded already. An agent that was named by its socket has the
// shim's socket beside that.
Result<> preload_shim(const Invocation& invocation) {
  const auto library = find_shim_library();
  if (!library) return std::unexpected(library.error());
  const char* before = std::getenv("LD_PRELOAD");
  const std::string list =
      before == nullptr || *before == '\0' ? *library : *library + ":" + before;
  const std::string socket = endpoints_of(invocation).socket;
  const std::string beside = (std::filesystem::path(socket).parent_path() / "shim.sock").string();
  if (::setenv("LD_PRELOAD", list.c_str(), 1) != 0 ||
      ::setenv("GPUSHARE_SHIM_SOCKET", beside.c_str(), 1) != 0)
    return errno_error("set the environment");
  return {};
}

}  // namespace

ExitCode command_run(const Invocation& invocation) {
  const Request request = run_request(invocation);
  const bool asks_for_nothing = request.tenant.empty() && request.settings.empty();
  auto client = Client::connect(endpoints_of(invocation).socket);
  if (client) {
    auto answer = client->ask(request);
    const Result<> joined = answer ? decode_done(*answer) : std::unexpected(answer.error());
    if (!joined) return report(joined.error());
  } else if (asks_for_nothing && client.error().code == std::errc::permission_denied) {
    // An ordinary user: the agent sees the program without being told, and puts it where the rules
    // say, else into the tenant `default`.
  } else if (invocation.has("allow-unmanaged")) {
    fmt::print(stderr, "gpushare: warning: {}; starting {} unmanaged\n", client.error().message(),
               invocation.arguments[0]);
  } else {
    return report(client.error());
  }
  if (invocation.has("shim"))
    if (const auto preloaded = preload_shim(invocation); !preloaded)
      return report(preloaded.error());
  std::vector<char*> arguments;
  arguments.reserve(invocation.arguments.size() + 1);
  for (const std::string& argument : invocation.arguments)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return report(errno_error("start the program", invocation.arguments[0]).error());
}

}  // namespace gpushare
