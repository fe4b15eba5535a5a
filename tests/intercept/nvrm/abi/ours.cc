// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "intercept/nvrm/abi.h"
#include "tests/intercept/nvrm/abi/abi.h"

namespace gpushare {

std::vector<AbiRow> our_nvrm_abi() {
  return {
#define GS_CONSTANT(ours, theirs, value) {#ours " is " #theirs, ours, 0},
#define GS_SIZE(ours, theirs, size) {"size of " #ours " is " #theirs, sizeof(ours), 0},
#define GS_FIELD(ours, member, theirs, their_member, offset, size)             \
  {#ours "." #member " is " #theirs "." #their_member, offsetof(ours, member), \
   sizeof(ours::member)},
#include "tests/intercept/nvrm/abi/table.inc"
  };
}

}  // namespace gpushare
