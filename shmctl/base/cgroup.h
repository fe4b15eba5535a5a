// SPDX-License-Identifier: Apache-2.0
// Where cgroups of version 2 are, and what the ones of `gpushare run --scope` are called. Any
// thread may call.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gpushare {

// Of the folder that `gpushare run --scope` makes where there is no systemd.
inline constexpr std::string_view kScopePrefix = "/gpushare-run-";

// The folder of the root of the version 2 hierarchy; nullopt where none is mounted whole.
std::optional<std::string> cgroup2_root();
// The same from the text of /proc/self/mountinfo.
std::optional<std::string> cgroup2_root(std::string_view mountinfo);

// The path of a process below that root, from the text of its /proc/PID/cgroup, whose lines are
// "ID:CONTROLLERS:PATH". The id 0 is version 2. Without it, systemd's own hierarchy names the same
// units. Empty: neither is there.
std::string cgroup_path(std::string_view text);

}  // namespace gpushare
