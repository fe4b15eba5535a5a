// SPDX-License-Identifier: Apache-2.0
// The wrappers, one for each entry of hooks.def: what the shim does for the call first, and then
// the driver's function with the program's arguments. Any thread of the program; a launch counts
// nanoseconds, so what it runs while nothing is in its way is inline and ends in a jump.
#include <type_traits>

#include "intercept/shim/calls/async_forms.h"
#include "intercept/shim/calls/credit_calls.h"
#include "intercept/shim/calls/graph_calls.h"
#include "intercept/shim/calls/needs.h"
#include "intercept/shim/calls/release_calls.h"
#include "intercept/shim/calls/special_calls.h"
#include "intercept/shim/calls/telling.h"
#include "intercept/shim/calls/waits.h"
#include "intercept/shim/driver/arguments.h"
#include "intercept/shim/driver/lookup.h"
#include "intercept/shim/driver/table.h"
#include "intercept/shim/link/gate.h"
#include "intercept/shim/streams/stream_use.h"

namespace gpushare::shim {
namespace {

template <int index, Kind kind, Flavor flavor, class Signature>
struct Wrapper;

// An argument as the driver gets it: a stream is replaced by the one where it is now.
template <class T>
T translated(const T& argument, CUstream) {
  return argument;
}
CUstream translated(CUstream, CUstream physical) { return physical; }

template <class... Parameters>
constexpr bool has_stream = (std::is_same_v<Parameters, CUstream> || ...);
template <class... Parameters>
constexpr bool has_configuration = (std::is_same_v<Parameters, const CUlaunchConfig*> || ...);

// A query does not count.
template <int index, Kind kind>
constexpr bool is_wait =
    (kind == Kind::kWait || kind == Kind::kFinish) && !is_called<index>("Query");

// Counts the thread in the slot while it lives, if the call waits for work.
template <int index, Kind kind>
class Waiting {
 public:
  Waiting() {
    if constexpr (is_wait<index, kind>) begin_wait(slot_);
  }
  ~Waiting() {
    if constexpr (is_wait<index, kind>) end_wait(slot_);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  ShimSlot& slot_ = slot();
};

// Returns true if waits are to be counted, and no move of streams does that.
inline bool is_counted_alone() {
  const uint32_t features = this_process().features.load(std::memory_order_relaxed);
  return (features & (kShimGate | kShimIterations)) != 0 &&
         (features & (kShimPartitions | kShimCredit)) == 0;
}

// After a call by which the host has waited. REQUIRES: the call uses no stream any more.
template <int index, Kind kind>
void after_wait(CUresult result) {
  if constexpr (is_wait<index, kind>)
    if (result == CUDA_SUCCESS)
      if (Streams* all = Streams::get()) {
        note_end();
        all->after_wait();
      }
}

inline CUcontext context_of() { return nullptr; }
inline CUcontext context_of(CUcontext context) { return context; }

template <int index, Kind kind>
constexpr Use use_of() {
  if (is_launch(kind)) return Use::kLaunch;
  if (kind == Kind::kWait && is_called<index>("Query")) return Use::kQuery;
  if (kind == Kind::kCaptured) return Use::kQuestion;
  return kind == Kind::kWait ? Use::kWait : Use::kOperation;
}

// Before a launch in a partition: what it needs of that.
template <class... Parameters>
[[gnu::always_inline]] inline void note_needs(const StreamUse& use,
                                              const Parameters&... parameters) {
  note_blocks(grid_of(parameters...), use.stream()->device->gpu,
              Streams::get()->is_any_capturing());
}

// cuLaunchKernelEx without a configuration is the driver's to refuse.
template <class... Parameters>
constexpr bool has_what_it_needs(const Parameters&...) {
  return true;
}
template <class... Rest>
bool has_what_it_needs(const CUlaunchConfig* config, const Rest&...) {
  return config != nullptr;
}

// cuLaunchKernelEx where streams may move: the stream is in the configuration, which is not null.
template <bool has_credit, int index, Flavor flavor, class... Rest>
CUresult launch_configured(CUresult (*driver)(const CUlaunchConfig*, Rest...),
                           const CUlaunchConfig* config, Rest... rest) {
  StreamUse use(config->hStream, flavor, Use::kLaunch);
  if (const CUresult refusal = use.refusal(); refusal != CUDA_SUCCESS) return refusal;
  const auto run = [&](CUstream stream) {
    CUlaunchConfig moved = *config;
    moved.hStream = stream;
    return credited<has_credit, index, flavor>(stream, first_of<CUfunction>(rest...),
                                               [&] { return driver(&moved, rest...); });
  };
  if (!use.is_away())
    return credited<has_credit, index, flavor>(config->hStream, first_of<CUfunction>(rest...),
                                               [&] { return driver(config, rest...); });
  const Grid grid = grid_of(config, rest...);
  note_blocks(grid, use.stream()->device->gpu, Streams::get()->is_any_capturing());
  const CUresult result = run(use.physical());
  if (!is_too_large(result)) return result;
  if (is_cooperative_too_large(result)) note_refused(grid, use.stream()->device->gpu);
  return use.at_home(run, result);
}

// Up to call_untold(), each of these must compile to a tail call with no earlier call, so that the
// launch arguments stay in registers. Exceptions are marked.
template <int index, Kind kind, Flavor flavor, class... Parameters>
struct Wrapper<index, kind, flavor, CUresult(Parameters...)> {
  static CUresult call(Parameters... arguments) {
    if constexpr (is_launch(kind)) {
      if (__builtin_expect(!passes_gate_quickly(), 0)) return call_held(arguments...);
      if (__builtin_expect(is_told(), 0)) return call_noted(arguments...);
    } else if constexpr (is_wait<index, kind>) {
      if (is_counted_alone()) return call_waiting(arguments...);
      if (__builtin_expect(is_told(), 0)) return call_told(arguments...);
    } else if constexpr (says_something(kind)) {
      if (__builtin_expect(is_told(), 0)) return call_told(arguments...);
    }
    return call_untold(arguments...);
  }

  // A wait where no stream moves: it is counted here, and call_untold() counts no more.
  [[gnu::noinline]] static CUresult call_waiting(Parameters... arguments) {
    const Waiting<index, kind> waiting;
    return is_told() ? call_told(arguments...) : call_untold(arguments...);
  }

  // An exception: it calls other functions first.
  [[gnu::noinline]] static CUresult call_held(Parameters... arguments) {
    if (pass_gate()) {
      Progress::look_up();
      if (may_move())
        if (Streams* all = Streams::get()) all->look_up();
    }
    return call_noted(arguments...);
  }

  [[gnu::noinline]] static CUresult call_noted(Parameters... arguments) {
    if (is_told() && !has_written_down<flavor>(arguments...)) return call_told(arguments...);
    return call_untold(arguments...);
  }

  [[gnu::always_inline]] static CUresult call_untold(Parameters... arguments) {
    const uint32_t features = features_of_streams();
    if (__builtin_expect(features != 0 && has_what_it_needs(arguments...), 0)) {
      if constexpr (is_launch(kind))
        if ((features & kShimCredit) != 0) return call_moved<true>(arguments...);
      if constexpr (kind == Kind::kFinish)
        return call_finished(arguments...);
      else if constexpr (kind == Kind::kRelease)
        return call_releasing(arguments...);
      else
        return call_moved<false>(arguments...);
    }
    return real<CUresult (*)(Parameters...)>(index)(arguments...);
  }

  [[gnu::noinline]] static CUresult call_told(Parameters... arguments) {
    if constexpr (kind == Kind::kLaunch) {
      tell_of_launch<index, kind, flavor>(arguments...);
      return call_untold(arguments...);
    }
    Progress* all = Progress::get();
    uint64_t stream = 0;
    if (all == nullptr || !may_tell<flavor>(*all, first_of<CUstream>(arguments...), &stream))
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
    constexpr bool kIsOfAll = index == kHook_cuCtxSynchronize || index == kHook_cuCtxSynchronize_v2;
    const CUresult result = [&] {
      const Waiting<index, kind> waiting;
      const auto driver = real<CUresult (*)(Parameters...)>(index);
      if constexpr (kIsOfAll) {
        if (Streams* all = Streams::get()) before_context_wait(*all, context_of(arguments...));
        const Seen seen;
        return seen.note(driver(arguments...));
      } else {
        return driver(arguments...);
      }
    }();
    after_wait<index, kind>(result);
    return result;
  }

  [[gnu::noinline]] static CUresult call_releasing(Parameters... arguments) {
    before_release<index>(arguments...);
    return real<CUresult (*)(Parameters...)>(index)(arguments...);
  }

  template <bool has_credit>
  [[gnu::noinline]] static CUresult call_moved(Parameters... arguments) {
    const auto driver = real<CUresult (*)(Parameters...)>(index);
    if constexpr (has_configuration<Parameters...>) {
      return launch_configured<has_credit, index, flavor>(driver, arguments...);
    } else if constexpr (has_stream<Parameters...>) {
      if constexpr (is_called<index>("cuStreamWaitEvent"))
        before_joining(first_of<CUstream>(arguments...), first_of<CUevent>(arguments...), flavor);
      StreamUse use(first_of<CUstream>(arguments...), flavor, use_of<index, kind>());
      const CUresult refusal = use.refusal(kind != Kind::kCaptured);
      if (refusal != CUDA_SUCCESS) return refusal;
      const auto run = [&](CUstream stream) {
        return credited<has_credit, index, flavor>(stream, first_of<CUfunction>(arguments...), [&] {
          return driver(translated(arguments, stream)...);
        });
      };
      if constexpr (is_graph_launch<index>)
        return launch_graph<has_credit, index, flavor>(driver, use, exec_of(arguments...));
      if constexpr (kind == Kind::kLaunch)
        if (use.is_away()) note_needs(use, arguments...);
      const CUresult result = [&] {
        const Waiting<index, kind> waiting;
        if constexpr (kind != Kind::kWait) return run(use.physical());
        const Seen seen(use.physical(), flavor);
        return seen.note(use.answer(run(use.physical())));
      }();
      after_wait<index, kind>(result);
      if constexpr (is_called<index>("cuEventRecord"))
        if (result == CUDA_SUCCESS) after_recording(use, first_of<CUevent>(arguments...));
      if (kind == Kind::kLaunch && is_too_large(result) && use.is_away()) {
        if (is_cooperative_too_large(result))
          note_refused(grid_of(arguments...), use.stream()->device->gpu);
        return use.at_home(run, result);
      }
      return result;
    } else {
      StreamUse use(nullptr, flavor, use_of<index, kind>());
      if (const CUresult refusal = use.refusal(); refusal != CUDA_SUCCESS) return refusal;
      if constexpr (async_form<index> != nullptr) {
        const auto form = use.is_away() ? async_form_of<index>(use, arguments...) : nullptr;
        if (form != nullptr)
          return credited<has_credit, index, flavor>(
              use.physical(), nullptr, [&] { return form(arguments..., use.physical()); });
      }
      const auto run = [&](CUstream home) {
        return credited<has_credit, index, flavor>(home, first_of<CUfunction>(arguments...),
                                                   [&] { return driver(arguments...); });
      };
      // It returns when what it has read is there, so all that comes before it has run.
      if constexpr (kind == Kind::kCopy && (is_called<index>("DtoH") || is_called<index>("AtoH"))) {
        const Seen seen(use.physical(), flavor);
        return seen.note(use.at_home(run));
      }
      return use.at_home(run);
    }
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

}  // namespace gpushare::shim
