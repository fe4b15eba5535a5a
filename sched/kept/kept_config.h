// SPDX-License-Identifier: Apache-2.0
// The last configuration that was correct, kept as a copy of its file: an agent that starts while
// the file has a mistake goes on with what held before, instead of leaving everybody without
// limits. Called on the agent's thread, at its start and at a reload.
#pragma once

#include <span>
#include <string>

#include "sched/policy/entry.h"

namespace gpushare {

// Makes `kept` a copy of `path`, whole or not at all, or takes it away where there is no such file.
// A file that has been changed since and is not correct is not kept. Where it cannot be written,
// for example because its folder is missing, the one before stays; that is logged unless it is as
// usual. An empty `kept` does nothing.
void keep_config(const std::string& path, const std::string& kept,
                 std::span<const PolicyEntry> policies);

}  // namespace gpushare
