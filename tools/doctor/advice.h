// SPDX-License-Identifier: Apache-2.0
// What commands that change tenants say beside what was asked of them: that a setting has no effect
// here, and which tenant was perhaps meant. They look at the control plane and the machine's files,
// and ask nobody; where the agent is not live they say nothing.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/base/endpoints.h"

namespace gpushare {

using SettingTexts = std::vector<std::pair<std::string, std::string>>;

// Prints a warning to standard error for each of `settings` that does not bind (doctor/limits.h).
void warn_of_no_effect(const Endpoints& endpoints, const SettingTexts& settings, bool has_shim);

// What to say when a request failed that named `tenant`: which one is perhaps meant, or, if
// `may_make`, how the tenant is made. Empty if there is such a tenant, or if that is not known.
std::string advice_on_tenant(const Endpoints& endpoints, const std::string& tenant, bool may_make);

// The number of processes that the tenant has on GPUs now; 0 also if that is not known.
uint32_t processes_on_gpus(const Endpoints& endpoints, const std::string& tenant);

}  // namespace gpushare
