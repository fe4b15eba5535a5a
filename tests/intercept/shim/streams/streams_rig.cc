// SPDX-License-Identifier: Apache-2.0
#include "tests/intercept/shim/streams/streams_rig.h"

namespace gpushare::shim {

constinit Process the_process{};
constinit std::atomic<uint64_t> the_time{1'000'000'000}, the_step_ns{kUsualStepNs};

// --- what the library has in attach.cc ----------------------------------------------------------

namespace detail {
constinit std::atomic<Process*> process{&the_process};
}
uint32_t attach() { return the_process.features.load(); }
// A launch that is held for nothing gives up soon.
uint64_t monotonic_ns() {
  const Stepping::Paused paused;
  return the_time.fetch_add(the_step_ns);
}

}  // namespace gpushare::shim
