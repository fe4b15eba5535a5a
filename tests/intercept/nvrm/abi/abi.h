// SPDX-License-Identifier: Apache-2.0
// The resource manager's ABI as numbers, so that our header and NVIDIA's, which cannot be included
// together, can be compared: table.inc is compiled once with each of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpushare {

struct AbiRow {
  std::string what;    // "gs_nvos64.h_new is NVOS64_PARAMETERS.hObjectNew"
  uint64_t value = 0;  // the value of a constant, the size of a struct, the offset of a member
  uint64_t bytes = 0;  // the size of a member
  bool operator==(const AbiRow&) const = default;
};

std::vector<AbiRow> recorded_nvrm_abi();  // the numbers in the table
std::vector<AbiRow> our_nvrm_abi();
std::vector<AbiRow> real_nvrm_abi();  // empty where OGKM_DIR named no checkout at build time

}  // namespace gpushare
