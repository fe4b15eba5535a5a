// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/gpu_clock.h"

namespace gpushare::nvrm {
namespace {
constexpr int kReadings = 5;
constexpr Nanos kValidFor = 1s;
constexpr Nanos kLongestRefresh = 5ms;
// By how much of the time the two clocks may part: more than time is ever slewed by.
constexpr int64_t kDriftPpm = 500;

Nanos drift(Nanos passed) { return passed * kDriftPpm / 1'000'000; }
}  // namespace

Time GpuClock::latest(Time now) const { return now + error_ + drift(now - compared_); }

Result<> GpuClock::refresh(const RmClient& client, uint32_t gpu, Time now) {
  if (is_set_ && now - asked_ < kValidFor) return {};
  Nanos best = Nanos::max();
  Nanos spent{};
  int64_t offset = 0;
  for (int i = 0; i < kReadings; ++i) {
    gs_gpu_time time{};
    const Time before = std::chrono::steady_clock::now();
    if (auto done = client.subdevice_control(gpu, GS_CTRL_TIMER_GET_TIME, time, "read GPU clock");
        !done)
      return done;
    const Nanos window = std::chrono::steady_clock::now() - before;
    spent += window;
    if (window < best) {
      best = window;
      const Time middle = before + window / 2;
      offset = middle.time_since_epoch().count() - static_cast<int64_t>(time.ns);
    }
    if (is_set_ && spent >= kLongestRefresh) break;
  }
  asked_ = now;
  if (is_set_ && best / 2 > error_ + drift(now - compared_)) return {};
  offset_ns_ = offset;
  error_ = best / 2;
  compared_ = now;
  is_set_ = true;
  return {};
}

}  // namespace gpushare::nvrm
