// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/version.h"

namespace gpushare {

const char* const kVersion = GS_VERSION;
const char* const kCommit = GS_COMMIT;

}  // namespace gpushare
