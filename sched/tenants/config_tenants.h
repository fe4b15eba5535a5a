// SPDX-License-Identifier: Apache-2.0
// The [tenant.NAME] tables of the configuration: settings and rules. Called by config.cc.
#pragma once

#include "sched/tenants/config_mistakes.h"

namespace gpushare {

// Fills `tenants` and `rules` of `config`, in the order of the file, and notes every mistake.
void read_tenants(const toml::table& table, Config& config, ConfigMistakes& mistakes);

}  // namespace gpushare
