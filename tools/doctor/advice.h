// SPDX-License-Identifier: Apache-2.0
// What programs that change tenants say beside what was asked of them: that a setting has no effect
// here, and which tenant was perhaps meant. They look at the control plane and the machine's files,
// and ask nobody; where the agent is not live they say nothing.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/agent/protocol.h"
#include "tools/base/endpoints.h"
#include "tools/base/report.h"

namespace gpushare {

using SettingTexts = std::vector<std::pair<std::string, std::string>>;

// What to say of each of the tenant's `settings` that does not bind (doctor/limits.h), such as
// "warning: memory_max=1G does not bind: gpushare.ko is not loaded". `has_shim`: of the programs
// that are meant, which one of the settings needs.
std::vector<std::string> no_effect_warnings(const Endpoints& endpoints, std::string_view tenant,
                                            const SettingTexts& settings, bool has_shim);
// Prints these to standard error.
void warn_of_no_effect(const Endpoints& endpoints, std::string_view tenant,
                       const SettingTexts& settings, bool has_shim);

// Reports why the agent has refused the request, and where there is no such tenant which one is
// perhaps meant, or how it is made, if that is of use for what was asked.
ExitCode report_refusal(const Endpoints& endpoints, const Request& request, const Error& error);

// The number of processes that the tenant has on GPUs now; 0 also if that is not known.
uint32_t processes_on_gpus(const Endpoints& endpoints, const std::string& tenant);

}  // namespace gpushare
