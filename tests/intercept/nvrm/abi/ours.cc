// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "intercept/nvrm/abi.h"
#include "tests/intercept/nvrm/abi/abi.h"

namespace gpushare {

std::vector<AbiRow> our_nvrm_abi() {
  return {
#define GS_SIDE(ours, theirs) ours
#include "tests/intercept/nvrm/abi/table.inc"
  };
}

}  // namespace gpushare
