// SPDX-License-Identifier: Apache-2.0
// Which build this is.
#pragma once

namespace gpushare {

extern const char* const kVersion;  // "0.1.0"
extern const char* const kCommit;   // twelve hex digits, or "unknown"

}  // namespace gpushare
