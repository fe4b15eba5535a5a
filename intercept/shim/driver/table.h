// SPDX-License-Identifier: Apache-2.0
// The table of hooks.def at run time. Constant but for `real_functions`; any thread.
#pragma once

#include <atomic>

#include "intercept/shim/driver/driver_types.h"
#include "intercept/shim/driver/kinds.h"

namespace gpushare::shim {

struct Hook {
  const char* base;
  const char* symbol;
  int since;
  Flavor flavor;
  Kind kind;
  void* wrapper;
};

// An entry's place in all tables, also in entry.S, is its place in hooks.def.
enum HookIndex : int {
#define GS_HOOK(kind, base, symbol, since, parameters) kHook_##symbol,
#define GS_HOOK_VARIANT GS_HOOK
#include "intercept/shim/driver/hooks.def"
  kHookCount
};

extern const Hook kHooks[kHookCount];

// What a wrapper calls: the driver's function. Set once, by bind(), before anyone has the wrapper's
// address, so the wrapper may load it relaxed.
extern std::atomic<void*> real_functions[kHookCount];

// -1: we stand in for none of that name.
int find_symbol(const char* symbol);

// What the driver's cuGetProcAddress means by this: the newest function of that name that is not
// newer than `version`; with the flavour that is asked for, where the function has it. -1: none.
int find_entry_point(const char* base, int version, Flavor flavor);

// True: calls of this hook's wrapper reach `function`. False when it already reaches a function of
// the same name in another library: then only the program's own pointer is right.
bool bind(int index, void* function);

}  // namespace gpushare::shim
