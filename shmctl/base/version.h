// SPDX-License-Identifier: Apache-2.0
// The version of this build. Constant; any thread may read it.
#pragma once

namespace gpushare {

extern const char* const kVersion;  // "0.1.0"
extern const char* const kCommit;   // twelve hex digits, or "unknown"

}  // namespace gpushare
