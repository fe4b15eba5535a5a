// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace gpushare::test {

// Of the cudaTypedefs.h that hooks.def was compared with; 0: there was none.
int compared_with_api_level();

}  // namespace gpushare::test
