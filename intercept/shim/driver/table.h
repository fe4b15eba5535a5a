// SPDX-License-Identifier: Apache-2.0
// The table of hooks.def at run time. Any thread; all of it is constant except `real_functions`.
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

// An entry has the same index in all tables, also in entry.S: its place in hooks.def.
enum HookIndex : int {
#define GS_HOOK(kind, base, symbol, since, parameters) kHook_##symbol,
#define GS_HOOK_VARIANT GS_HOOK
#include "intercept/shim/driver/hooks.def"
  kHookCount
};

extern const Hook kHooks[kHookCount];

// The driver's functions, which the wrappers call. Each is set once, by bind(), before the program
// gets the wrapper's address, so the wrapper may load it relaxed.
extern std::atomic<void*> real_functions[kHookCount];

template <class Function>
Function real(int index) {
  return reinterpret_cast<Function>(real_functions[index].load(std::memory_order_relaxed));
}

// The default stream that a null handle, or no handle, means in this entry.
constexpr Flavor flavor_of(int index) {
  constexpr Flavor kFlavors[] = {
#define GS_HOOK(kind, base, symbol, since, parameters) Flavor::kLegacy,
#define GS_HOOK_VARIANT(kind, base, symbol, since, parameters) Flavor::kPerThread,
#include "intercept/shim/driver/hooks.def"
  };
  return kFlavors[index];
}

// The index of the entry with this symbol; -1: there is none.
int find_symbol(const char* symbol);

// The index of the entry that the driver's cuGetProcAddress means: the newest function of that name
// that is not newer than `version`, in the flavour that is asked for if it has that one. -1: none.
int find_entry_point(const char* base, int version, Flavor flavor);

// Makes the entry's wrapper call `function`, if it calls none yet. Returns false if it already
// calls the function of that name in another library: the program must then keep its own pointer.
bool bind(int index, void* function);

}  // namespace gpushare::shim
