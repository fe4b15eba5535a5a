// SPDX-License-Identifier: Apache-2.0
// The wrappers, one for each entry of hooks.def: what we do first, then the driver's function with
// the program's arguments.
#include <cstring>
#include <type_traits>

#include "intercept/shim/calls/async_forms.h"
#include "intercept/shim/calls/special_calls.h"
#include "intercept/shim/calls/told_calls.h"
#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/driver/table.h"
#include "intercept/shim/link/gate.h"
#include "intercept/shim/streams/stream_use.h"

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
template <class First, class... Rest>
CUstream stream_of(const First&, const Rest&... rest) {
  return stream_of(rest...);
}

// REQUIRES: the call is made, and uses no stream any more. A question is no wait.
template <int index, Kind kind>
void after_wait(CUresult result) {
  if constexpr ((kind == Kind::kWait || kind == Kind::kFinish) && !is_called<index>("Query"))
    if (result == CUDA_SUCCESS)
      if (Streams* all = Streams::get()) all->after_wait();
}

inline CUcontext context_of() { return nullptr; }
inline CUcontext context_of(CUcontext context) { return context; }

constexpr Use use_of(Kind kind) {
  if (is_launch(kind)) return Use::kLaunch;
  return kind == Kind::kWait || kind == Kind::kCaptured ? Use::kWait : Use::kOperation;
}

// Of iterations; here and below.
constexpr bool says_something(Kind kind) {
  return (features_that_need(kind) & kShimIterations) != 0;
}
[[gnu::always_inline]] inline bool is_told() {
  return this_process().is_telling.load(std::memory_order_relaxed);
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

// The stream's number, for Progress. False: this call says nothing. Nothing runs of what a stream
// captures.
bool may_tell(Progress& all, CUstream handle, Flavor flavor, uint64_t* stream) {
  if (!all.is_guessing() ||
      (all.is_any_capturing() && all.is_capturing(physical_of(handle, flavor))))
    return false;
  *stream = Progress::number_of(handle, flavor);
  return true;
}

// A kernel of which nobody needs to know more at once than that it is launched.
template <Flavor flavor, class... Rest>
[[gnu::always_inline]] inline bool has_written_down(CUfunction function, unsigned x, unsigned y,
                                                    unsigned z, const Rest&... rest) {
  Progress* const all = this_process().progress.load(std::memory_order_acquire);
  return all != nullptr && all->has_written_down(number(function), blocks_of(x, y, z),
                                                 Progress::number_of(stream_of(rest...), flavor));
}
template <Flavor flavor>
[[gnu::always_inline]] inline bool has_written_down(const CUlaunchConfig* config,
                                                    CUfunction function, void**, void**) {
  Progress* const all = this_process().progress.load(std::memory_order_acquire);
  return all != nullptr && config != nullptr &&
         all->has_written_down(number(function),
                               blocks_of(config->gridDimX, config->gridDimY, config->gridDimZ),
                               Progress::number_of(config->hStream, flavor));
}
template <Flavor flavor, class... Parameters>
bool has_written_down(const Parameters&...) {
  return false;
}

// What a call says before it is made. It is given no more than it looks at, so that the arguments
// of a launch stay where they are.
template <int index, Kind kind, Flavor flavor, class... Told>
[[gnu::noinline]] void tell(CUstream handle, Told... told) {
  Progress* all = Progress::get();
  uint64_t stream = 0;
  if (all != nullptr && may_tell(*all, handle, flavor, &stream))
    tell_before<index, kind>(*all, stream, told...);
}
template <int index, Kind kind, Flavor flavor, class... Rest>
void tell_of_launch(CUfunction function, unsigned x, unsigned y, unsigned z, const Rest&... rest) {
  tell<index, kind, flavor>(stream_of(rest...), function, x, y, z);
}
template <int index, Kind kind, Flavor flavor, class... Parameters>
void tell_of_launch(const Parameters&... arguments) {
  tell<index, kind, flavor>(stream_of(arguments...), arguments...);
}

template <int index, Kind kind, Flavor flavor, class... Parameters>
struct Wrapper<index, kind, flavor, CUresult(Parameters...)> {
  // Each of these ends in a jump to another one or to the driver's, and calls nothing before, so
  // that the arguments stay where they are; but where it is said otherwise.
  static CUresult call(Parameters... arguments) {
    if constexpr (is_launch(kind)) {
      if (__builtin_expect(!passes_gate_quickly(), 0)) return call_held(arguments...);
      if (__builtin_expect(is_told(), 0)) return call_noted(arguments...);
    } else if constexpr (says_something(kind)) {
      if (__builtin_expect(is_told(), 0)) return call_told(arguments...);
    }
    return call_untold(arguments...);
  }

  // Calls others.
  [[gnu::noinline]] static CUresult call_held(Parameters... arguments) {
    if (pass_gate()) Progress::look_up();
    return call_noted(arguments...);
  }

  [[gnu::noinline]] static CUresult call_noted(Parameters... arguments) {
    if (is_told() && !has_written_down<flavor>(arguments...)) return call_told(arguments...);
    return call_untold(arguments...);
  }

  [[gnu::always_inline]] static CUresult call_untold(Parameters... arguments) {
    if (__builtin_expect(may_move(), 0)) {
      if constexpr (kind == Kind::kFinish)
        return call_finished(arguments...);
      else
        return call_moved(arguments...);
    }
    return real<CUresult (*)(Parameters...)>(index)(arguments...);
  }

  // Calls others, like all that follow.
  [[gnu::noinline]] static CUresult call_told(Parameters... arguments) {
    if constexpr (kind == Kind::kLaunch) {
      tell_of_launch<index, kind, flavor>(arguments...);
      return call_untold(arguments...);
    }
    Progress* all = Progress::get();
    uint64_t stream = 0;
    if (all == nullptr || !may_tell(*all, stream_of(arguments...), flavor, &stream))
      return call_untold(arguments...);
    tell_before<index, kind>(*all, stream, arguments...);
    const CUresult result = call_untold(arguments...);
    tell_after<index, kind>(*all, result, stream, arguments...);
    return result;
  }

  [[gnu::noinline]] static CUresult call_finished(Parameters... arguments) {
    if constexpr (index == kHook_cuCtxSynchronize || index == kHook_cuCtxSynchronize_v2)
      if (Streams* all = Streams::get())
        if (const CUresult refusal = all->refusal_of_wait(context_of(arguments...));
            refusal != CUDA_SUCCESS)
          return refusal;
    const CUresult result = real<CUresult (*)(Parameters...)>(index)(arguments...);
    after_wait<index, kind>(result);
    return result;
  }

  [[gnu::noinline]] static CUresult call_moved(Parameters... arguments) {
    const auto driver = real<CUresult (*)(Parameters...)>(index);
    if constexpr (has_stream<Parameters...>) {
      StreamUse use(stream_of(arguments...), flavor, use_of(kind));
      const CUresult refusal = use.refusal(kind != Kind::kCaptured);
      if (refusal != CUDA_SUCCESS) return refusal;
      const auto run = [&](CUstream stream) { return driver(translated(arguments, stream)...); };
      if constexpr (index == kHook_cuGraphLaunch || index == kHook_cuGraphLaunch_ptsz)
        if (use.is_away() && Streams::get()->launches_graphs_at_home(*use.stream()))
          return use.at_home(run);
      const CUresult result = run(use.physical());
      after_wait<index, kind>(result);
      if (kind == Kind::kLaunch && is_too_large(result) && use.is_away()) return use.at_home(run);
      return result;
    } else {
      StreamUse use(nullptr, flavor, use_of(kind));
      if (const CUresult refusal = use.refusal(); refusal != CUDA_SUCCESS) return refusal;
      if constexpr (async_form<index> != nullptr) {
        const auto form = use.is_away() ? async_form_of<index>(use, arguments...) : nullptr;
        if (form != nullptr) return form(arguments..., use.physical());
      }
      return use.at_home([&](CUstream) { return driver(arguments...); });
    }
  }
};

// cuLaunchKernelEx: the stream is in the configuration.
template <int index, Flavor flavor, class... Rest>
struct Wrapper<index, Kind::kLaunch, flavor, CUresult(const CUlaunchConfig*, Rest...)> {
  // As above.
  static CUresult call(const CUlaunchConfig* config, Rest... rest) {
    if (__builtin_expect(!passes_gate_quickly(), 0)) return call_held(config, rest...);
    if (__builtin_expect(is_told(), 0)) return call_noted(config, rest...);
    return call_untold(config, rest...);
  }

  [[gnu::noinline]] static CUresult call_held(const CUlaunchConfig* config, Rest... rest) {
    if (pass_gate()) Progress::look_up();
    return call_noted(config, rest...);
  }

  [[gnu::noinline]] static CUresult call_noted(const CUlaunchConfig* config, Rest... rest) {
    if (is_told() && !has_written_down<flavor>(config, rest...)) return call_told(config, rest...);
    return call_untold(config, rest...);
  }

  [[gnu::noinline]] static CUresult call_told(const CUlaunchConfig* config, Rest... rest) {
    if (config != nullptr) tell<index, Kind::kLaunch, flavor>(config->hStream, config, rest...);
    return call_untold(config, rest...);
  }

  [[gnu::always_inline]] static CUresult call_untold(const CUlaunchConfig* config, Rest... rest) {
    if (__builtin_expect(may_move() && config != nullptr, 0)) return call_moved(config, rest...);
    return real<CUresult (*)(const CUlaunchConfig*, Rest...)>(index)(config, rest...);
  }

  [[gnu::noinline]] static CUresult call_moved(const CUlaunchConfig* config, Rest... rest) {
    const auto driver = real<CUresult (*)(const CUlaunchConfig*, Rest...)>(index);
    StreamUse use(config->hStream, flavor, Use::kLaunch);
    if (const CUresult refusal = use.refusal(); refusal != CUDA_SUCCESS) return refusal;
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
#include "intercept/shim/driver/hooks.def"
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
