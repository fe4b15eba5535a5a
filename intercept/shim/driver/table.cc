// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/driver/table.h"

#include <cstring>

namespace gpushare::shim {

int find_symbol(const char* symbol) {
  for (int i = 0; i < kHookCount; ++i)
    if (std::strcmp(kHooks[i].symbol, symbol) == 0) return i;
  return -1;
}

int find_entry_point(const char* base, int version, Flavor flavor) {
  int best = -1;
  for (int i = 0; i < kHookCount; ++i) {
    const Hook& hook = kHooks[i];
    if (hook.since > version || std::strcmp(hook.base, base) != 0) continue;
    if (hook.flavor == Flavor::kPerThread && flavor == Flavor::kLegacy) continue;
    if (best < 0 || hook.since > kHooks[best].since ||
        (hook.since == kHooks[best].since && hook.flavor == flavor))
      best = i;
  }
  return best;
}

}  // namespace gpushare::shim
