// SPDX-License-Identifier: Apache-2.0
// The roster (shmctl/plane/roster.h) as text: JSON that names what it lists, so that a version
// whose control plane has another layout understands it. Settings stand under their keys with
// values as in the configuration, tenants and processes under their names and numbers:
//
//   {"format": 1, "boot": "3c5a...", "tenants": [{"name": "batch", "kept": true, "frozen": true,
//    "settings": {"weight": "70"}}], "processes": [{"pid": 7, "start_ticks": 123, "tenant":
//    "batch", "frozen": true}], "scopes": [{"cgroup": "/a.scope", "tenant": "batch"}]}
//
// Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/error.h"
#include "shmctl/plane/roster.h"

namespace gpushare {

// `boot`: which start of the machine this is; only within it a pid with its start names a process.
std::string roster_text(const Roster::Copy& roster, std::string_view boot);

struct ParsedRoster {
  Roster::Copy roster;                // tenants in new slots
  std::vector<std::string> left_out;  // what was not understood, and why; printable
};
// Takes what this version understands. A setting, a tenant, a process or a scope that it does not
// is left out alone; after another boot so are all processes. Error invalid_argument: it is no such
// text, or one of another format.
Result<ParsedRoster> parse_roster(std::string_view text, std::string_view boot);

}  // namespace gpushare
