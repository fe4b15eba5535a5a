// SPDX-License-Identifier: Apache-2.0
// Says in words and numbers what becomes of a tenant on a GPU that is divided by target times, for
// gpushare status, gpushare tenants and gpushare-top. Pure.
#pragma once

#include <string>

#include "shmctl/plane/layout.h"

namespace gpushare {

// The SMs in use and entitled to: "48/64", or "104/104 by 12" where 12 tenants have the same ones.
std::string sms_text(const TenantGpuUse& use);
bool does_share_sms(const TenantGpuUse& use);

// Says why its program stays on other SMs for long: "its program has contexts of its own". Empty if
// it does not, or not yet.
std::string obstacle_text(const TenantGpuUse& use);

std::string target_text(const TenantGpuUse& use);  // "20.0ms"; "-": it has no target
std::string rate_text(const TenantGpuUse& use);    // iterations a second: "32.3"

// Says why it has the SMs that it has: "meets its target". Empty where no target times decide.
std::string slo_reason(const TenantGpuUse& use);

}  // namespace gpushare
