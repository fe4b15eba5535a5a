// SPDX-License-Identifier: Apache-2.0
// The commands of gpushare, one function each. They print and return the exit code. A group of
// commands is one file.
#pragma once

#include <string_view>

#include "tools/base/cli_args.h"

namespace gpushare {

// Prints `text` and how `command` is used to stderr. Returns kExitUsage.
ExitCode report_usage(std::string_view text, const CommandSpec& command);

ExitCode command_run(const Invocation& invocation);  // returns only on failure

ExitCode command_status(const Invocation& invocation);
ExitCode command_tenants(const Invocation& invocation);

ExitCode command_set(const Invocation& invocation);
ExitCode command_remove(const Invocation& invocation);
ExitCode command_attach(const Invocation& invocation);
ExitCode command_freeze(const Invocation& invocation);
ExitCode command_thaw(const Invocation& invocation);

ExitCode command_profile(const Invocation& invocation);
ExitCode command_trace(const Invocation& invocation);

ExitCode command_preload(const Invocation& invocation);
ExitCode command_doctor(const Invocation& invocation);
ExitCode command_recover(const Invocation& invocation);
ExitCode command_version(const Invocation& invocation);
ExitCode command_completion(const Invocation& invocation);

}  // namespace gpushare
