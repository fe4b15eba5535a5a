// SPDX-License-Identifier: Apache-2.0
// The wrappers, one for each entry of hooks.def: what we do first, then the driver's function with
// the program's arguments.
#include <cstring>
#include <type_traits>

#include "intercept/shim/gate.h"
#include "intercept/shim/lookup.h"
#include "intercept/shim/special_calls.h"
#include "intercept/shim/streams.h"
#include "intercept/shim/table.h"
#include "intercept/shim/told_calls.h"

namespace gpushare::shim {
namespace {

template <int index, Kind kind, Flavor flavor, class Signature>
struct Wrapper;

// A parameter as the driver gets it.
template <class T>
T translated(const T& argument, CUstream) {
  return argument;
}
CUstream translated(CUstream, CUstream physical) { return physical; }

template <class... Parameters>
constexpr bool has_stream = (std::is_same_v<Parameters, CUstream> || ...);

inline CUstream stream_of() { return nullptr; }
template <class... Rest>
CUstream stream_of(CUstream stream, const Rest&...) {
  return stream;
}
template <class... Rest>
CUstream stream_of(const CUlaunchConfig* config, const Rest&...) {
  return config == nullptr ? nullptr : config->hStream;
}
template <class First, class... Rest>
CUstream stream_of(const First&, const Rest&... rest) {
  return stream_of(rest...);
}

constexpr Use use_of(Kind kind) {
  if (kind == Kind::kLaunch) return Use::kLaunch;
  return kind == Kind::kWait || kind == Kind::kCaptured ? Use::kWait : Use::kOperation;
}

// Does a call do more than pass the gate?
bool does_more() {
  return (this_process().features.load(std::memory_order_relaxed) &
          (kShimPartitions | kShimIterations)) != 0;
}
// Of iterations.
constexpr bool says_something(Kind kind) {
  return (features_that_need(kind) & kShimIterations) != 0;
}
bool is_told() {
  return (this_process().features.load(std::memory_order_relaxed) & kShimIterations) != 0;
}

CUstream physical_of(CUstream handle, Flavor flavor) {
  if (!may_move()) return handle;
  Streams* all = Streams::get();
  const Stream* known = all == nullptr ? nullptr : all->find(handle, flavor);
  return known == nullptr ? handle : known->physical();
}

// What a launch says that is too large for a partition, and perhaps not for the GPU.
constexpr bool is_too_large(CUresult result) {
  constexpr unsigned kCooperativeLaunchTooLarge = 720, kInvalidClusterSize = 912;
  return result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES || result == kCooperativeLaunchTooLarge ||
         result == kInvalidClusterSize;
}

// A call between what it tells before and after it. Nothing runs of what a stream captures.
template <int index, Kind kind, Flavor flavor, class Call, class... Parameters>
CUresult told(const Call& call, const Parameters&... arguments) {
  Progress* all = Progress::get();
  if (all == nullptr || !all->is_guessing()) return call();
  const CUstream handle = stream_of(arguments...);
  if (all->is_capturing(physical_of(handle, flavor))) return call();
  const uint64_t stream = Progress::number_of(handle, flavor);
  tell_before<index, kind>(*all, stream, arguments...);
  const CUresult result = call();
  tell_after<index, kind>(*all, result, stream, arguments...);
  return result;
}

template <int index, Kind kind, Flavor flavor, class... Parameters>
struct Wrapper<index, kind, flavor, CUresult(Parameters...)> {
  static CUresult call(Parameters... arguments) {
    if constexpr (kind == Kind::kLaunch) pass_gate();
    if (__builtin_expect(does_more(), 0)) return call_more(arguments...);
    return real<CUresult (*)(Parameters...)>(index)(arguments...);
  }

  [[gnu::noinline]] static CUresult call_more(Parameters... arguments) {
    if (!says_something(kind) || !is_told()) return call_moved(arguments...);
    return told<index, kind, flavor>(
        [&] {
          return kind != Kind::kFinish && may_move()
                     ? call_moved(arguments...)
                     : real<CUresult (*)(Parameters...)>(index)(arguments...);
        },
        arguments...);
  }

  [[gnu::noinline]] static CUresult call_moved(Parameters... arguments) {
    const auto driver = real<CUresult (*)(Parameters...)>(index);
    if constexpr (has_stream<Parameters...>) {
      StreamUse use(stream_of(arguments...), flavor, use_of(kind));
      const auto run = [&](CUstream stream) { return driver(translated(arguments, stream)...); };
      const CUresult result = run(use.physical());
      if (kind == Kind::kLaunch && is_too_large(result) && use.is_away()) return use.at_home(run);
      return result;
    } else {
      StreamUse use(nullptr, flavor, Use::kOperation);
      return use.at_home([&](CUstream) { return driver(arguments...); });
    }
  }
};

// cuLaunchKernelEx: the stream is in the configuration.
template <int index, Flavor flavor, class... Rest>
struct Wrapper<index, Kind::kLaunch, flavor, CUresult(const CUlaunchConfig*, Rest...)> {
  static CUresult call(const CUlaunchConfig* config, Rest... rest) {
    pass_gate();
    if (__builtin_expect(does_more() && config != nullptr, 0)) return call_more(config, rest...);
    return real<CUresult (*)(const CUlaunchConfig*, Rest...)>(index)(config, rest...);
  }

  [[gnu::noinline]] static CUresult call_more(const CUlaunchConfig* config, Rest... rest) {
    if (!is_told()) return call_moved(config, rest...);
    return told<index, Kind::kLaunch, flavor>(
        [&] {
          return may_move()
                     ? call_moved(config, rest...)
                     : real<CUresult (*)(const CUlaunchConfig*, Rest...)>(index)(config, rest...);
        },
        config, rest...);
  }

  [[gnu::noinline]] static CUresult call_moved(const CUlaunchConfig* config, Rest... rest) {
    const auto driver = real<CUresult (*)(const CUlaunchConfig*, Rest...)>(index);
    StreamUse use(config->hStream, flavor, Use::kLaunch);
    const auto run = [&](CUstream stream) {
      CUlaunchConfig moved = *config;
      moved.hStream = stream;
      return driver(&moved, rest...);
    };
    if (!use.is_away()) return driver(config, rest...);
    const CUresult result = run(use.physical());
    return is_too_large(result) ? use.at_home(run) : result;
  }
};

// cuGetProcAddress and _v2.
template <int index, Flavor flavor, class... Status>
struct Wrapper<index, Kind::kLookup, flavor,
               CUresult(const char*, void**, int, uint64_t, Status...)> {
  static CUresult call(const char* base, void** function, int version, uint64_t flags,
                       Status... status) {
    const auto driver = real<CUresult (*)(const char*, void**, int, uint64_t, Status...)>(index);
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

template <int index, Kind kind, Flavor flavor, class Signature>
struct Chosen : Wrapper<index, kind, flavor, Signature> {};
template <int index, Kind kind, Flavor flavor, class Signature>
  requires has_special<index>
struct Chosen<index, kind, flavor, Signature> : Special<index, Signature> {};

}  // namespace

#define GS_ENTRY(kind, base, symbol, since, parameters, flavor) \
  Hook{#base,                                                   \
       #symbol,                                                 \
       since,                                                   \
       flavor,                                                  \
       Kind::k##kind,                                           \
       reinterpret_cast<void*>(                                 \
           &Chosen<kHook_##symbol, Kind::k##kind, flavor, CUresult parameters>::call)},
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
