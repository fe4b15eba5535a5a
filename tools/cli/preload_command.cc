// SPDX-License-Identifier: Apache-2.0
// gpushare preload: puts the shim into every program that starts from now on, or takes it out.
#include <fmt/format.h>

#include <cstdio>

#include "tools/base/preload.h"
#include "tools/base/report.h"
#include "tools/cli/commands.h"

namespace gpushare {
namespace {

ExitCode enable(const std::string& root) {
  const auto library = find_shim_library();
  if (!library) return report(library.error());
  if (const auto tried = try_preload(*library); !tried) return report(tried.error());
  const auto text = read_preload(root);
  if (!text) return report(text.error());
  // The library of another installation may be there already, and two would disturb each other.
  const std::string others =
      has_preload_entry(*text, *library) ? *text : without_preload_entry(*text);
  const std::string wanted = with_preload_entry(others, *library);
  if (wanted != *text)
    if (const auto written = write_preload(root, wanted); !written) return report(written.error());
  fmt::print("enabled: {} in {}\n", *library, preload_path(root));
  return kExitOk;
}

ExitCode disable(const std::string& root) {
  const auto text = read_preload(root);
  if (!text) return report(text.error());
  const std::string wanted = without_preload_entry(*text);
  if (wanted != *text)
    if (const auto written = write_preload(root, wanted); !written) return report(written.error());
  fmt::print("disabled\n");
  return kExitOk;
}

ExitCode show(const std::string& root) {
  const auto text = read_preload(root);
  if (!text) return report(text.error());
  fmt::print("{}\n", has_preload_entry(*text, "") ? "enabled" : "disabled");
  return kExitOk;
}

ExitCode preload(const Invocation& invocation) {
  const std::string root = invocation.text("root");
  const std::string& what = invocation.arguments[0];
  return what == "enable" ? enable(root) : what == "disable" ? disable(root) : show(root);
}

}  // namespace

Command preload_command() {
  return {
      .name = "preload",
      .summary = "Put libgpushare.so into every program that starts from now on.",
      .arguments = "enable|disable|status",
      .details =
          "Adds it to /etc/ld.so.preload, or takes it out; other entries stay. It is not "
          "added when an ordinary program does not start with it. Where the agent wants "
          "nothing of a program, the library does nothing in it. Needs root.",
      .options = {{"root", 0, "DIR", "The file system to work on, in DIR/etc/ld.so.preload", "/"}},
      .examples = {"sudo gpushare preload enable", "gpushare preload status"},
      .run = preload};
}

}  // namespace gpushare
