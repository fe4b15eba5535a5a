// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/graphs/context_waits.h"

#include <optional>

#include "intercept/shim/driver/in_context.h"
#include "intercept/shim/link/backoff.h"
#include "intercept/shim/link/quiet.h"

namespace gpushare::shim {
namespace {

// An event by which the host waits as it waits for the context: it sleeps, or it looks all the
// time.
class Waiter {
 public:
  explicit Waiter(const Driver& driver) : driver_(driver) {
    constexpr unsigned kContextSleeps = 4, kEventSleeps = 1;
    unsigned flags = 0;
    driver.cuCtxGetFlags(&flags);
    if (driver.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING |
                                          ((flags & kContextSleeps) != 0 ? kEventSleeps : 0)) !=
        CUDA_SUCCESS)
      event_ = nullptr;
  }
  ~Waiter() {
    if (event_ != nullptr) driver_.cuEventDestroy_v2(event_);
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  CUevent event() const { return event_; }  // null: the driver has none
  // Returns true when all has ended behind which `record` puts the event.
  template <class Record>
  bool wait(const Record& record) const {
    return event_ != nullptr && record(event_) &&
           driver_.cuEventSynchronize(event_) == CUDA_SUCCESS;
  }

 private:
  const Driver& driver_;
  CUevent event_ = nullptr;
};

// One that is home again and cannot be used from here; its graphs ran where it was before.
bool wait_by_asking(const Streams& all, Stream& stream) {
  for (Backoff wait; stream.place.load(std::memory_order_acquire) == 0; wait.pause())
    if (!all.is_leaving(stream)) return true;
  return false;
}

}  // namespace

void wait_for_graphs(Streams& all, Device& device) {
  const KeepErrno errno_of_the_program;
  if (Inside::is_any()) return;
  const Inside inside;
  const Driver& functions = *driver();
  const InContext in(functions, device.primary.load(std::memory_order_relaxed));
  if (!in.is_there()) return;
  const AllowedInCaptures allowed(functions);
  const auto is_seen = [](const auto& seen, uint32_t launched) {
    return seen.load(std::memory_order_acquire) == launched;
  };
  std::optional<Waiter> waiter;
  const auto hand_over = [&](Stream& stream) {
    if (!waiter) waiter.emplace(functions);
    return waiter->event() != nullptr && all.hand_over(stream, waiter->event());
  };
  const auto is_done = [&](const Stream& stream) {
    return is_seen(stream.graphs_seen, stream.graphs.load(std::memory_order_acquire));
  };
  // All before the first wait, as what is launched meanwhile must not be waited for.
  bool is_any_left = false;
  all.for_each_used(device, [&](Stream& stream) {
    if (!is_done(stream) && !hand_over(stream)) is_any_left = true;
  });
  if (is_any_left)
    all.for_each_used(device, [&](Stream& stream) {
      const uint32_t launched = stream.graphs.load(std::memory_order_acquire);
      if (is_seen(stream.graphs_seen, launched)) return;
      if (wait_by_asking(all, stream))
        stream.graphs_seen.store(launched, std::memory_order_release);
      else
        hand_over(stream);  // it has left home again
    });
  // Last: a stream that ends meanwhile leaves its graphs there before it says that they are seen.
  const uint32_t left = device.left_graphs.load(std::memory_order_acquire);
  if (is_seen(device.left_graphs_seen, left)) return;
  if (!waiter) waiter.emplace(functions);
  if (waiter->wait([&](CUevent event) {
        return functions.cuEventRecord(event, device.left) == CUDA_SUCCESS;
      }))
    device.left_graphs_seen.store(left, std::memory_order_release);
}

}  // namespace gpushare::shim
