// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/gpu_clock.h"

namespace gpushare::nvrm {
namespace {
constexpr int kReadings = 5;
constexpr Nanos kValidFor = 1s;
}  // namespace

Result<> GpuClock::refresh(const RmClient& client, uint32_t gpu, Time now) {
  if (is_set_ && now - compared_ < kValidFor) return {};
  Nanos best = Nanos::max();
  int64_t offset = 0;
  for (int i = 0; i < kReadings; ++i) {
    gs_gpu_time time{};
    const Time before = std::chrono::steady_clock::now();
    if (auto done = client.subdevice_control(gpu, GS_CTRL_TIMER_GET_TIME, time, "read GPU clock");
        !done)
      return done;
    const Nanos window = std::chrono::steady_clock::now() - before;
    if (window >= best) continue;
    best = window;
    const Time middle = before + window / 2;
    offset = middle.time_since_epoch().count() - static_cast<int64_t>(time.ns);
  }
  offset_ns_ = offset;
  error_ = best / 2;
  compared_ = now;
  is_set_ = true;
  return {};
}

}  // namespace gpushare::nvrm
