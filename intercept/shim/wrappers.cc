// SPDX-License-Identifier: Apache-2.0
// The wrappers, one for each entry of hooks.def: what we do first, then the driver's function with
// the program's arguments.
#include <cstring>
#include <utility>

#include "intercept/shim/gate.h"
#include "intercept/shim/lookup.h"
#include "intercept/shim/table.h"

namespace gpushare::shim {
namespace {

template <Kind kind, class Function>
Function real(int index) {
  return reinterpret_cast<Function>(real_functions[index].load(std::memory_order_relaxed));
}

template <int index, Kind kind, Flavor flavor, class Signature>
struct Wrapper;

template <int index, Kind kind, Flavor flavor, class... Parameters>
struct Wrapper<index, kind, flavor, CUresult(Parameters...)> {
  static CUresult call(Parameters... arguments) {
    if constexpr (kind == Kind::kLaunch) pass_gate();
    return real<kind, CUresult (*)(Parameters...)>(index)(arguments...);
  }
};

// cuGetProcAddress and _v2.
template <int index, Flavor flavor, class... Status>
struct Wrapper<index, Kind::kLookup, flavor,
               CUresult(const char*, void**, int, uint64_t, Status...)> {
  static CUresult call(const char* base, void** function, int version, uint64_t flags,
                       Status... status) {
    const auto driver =
        real<Kind::kLookup, CUresult (*)(const char*, void**, int, uint64_t, Status...)>(index);
    const CUresult result = driver(base, function, version, flags, status...);
    if (result != CUDA_SUCCESS || base == nullptr || function == nullptr || *function == nullptr)
      return result;
    *function = substitute_entry_point(base, version, flags, *function, [&](int since) {
      void* same = nullptr;
      return driver(base, &same, since, flags, Status{}...) == CUDA_SUCCESS ? same : nullptr;
    });
    return result;
  }
};

}  // namespace

#define GS_ENTRY(kind, base, symbol, since, parameters, flavor) \
  Hook{#base,                                                   \
       #symbol,                                                 \
       since,                                                   \
       flavor,                                                  \
       Kind::k##kind,                                           \
       reinterpret_cast<void*>(                                 \
           &Wrapper<kHook_##symbol, Kind::k##kind, flavor, CUresult parameters>::call)},
#define GS_HOOK(kind, base, symbol, since, parameters) \
  GS_ENTRY(kind, base, symbol, since, parameters, Flavor::kLegacy)
#define GS_HOOK_VARIANT(kind, base, symbol, since, parameters) \
  GS_ENTRY(kind, base, symbol, since, parameters, Flavor::kPerThread)
const Hook kHooks[kHookCount] = {
#include "intercept/shim/hooks.def"
};
#undef GS_ENTRY

constinit std::atomic<void*> real_functions[kHookCount] = {};

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
