// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/wait.h"

#include <algorithm>

namespace gpushare {

DemoWait::DemoWait() {
  ::sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals_, signal);
  ::sigprocmask(SIG_BLOCK, &signals_, nullptr);
}

Result<> DemoWait::until(Time instant) {
  const MonotonicClock clock;
  while (!is_interrupted_) {
    const Nanos left = std::max(instant - clock.now(), Nanos{});
    const timespec wait{.tv_sec = left.count() / 1'000'000'000,
                        .tv_nsec = left.count() % 1'000'000'000};
    if (::sigtimedwait(&signals_, nullptr, &wait) > 0) is_interrupted_ = true;
    if (!is_interrupted_ && clock.now() >= instant) return {};
  }
  return make_error(std::errc::operation_canceled, "wait");
}

Result<bool> DemoWait::until(const std::function<Result<bool>()>& is_done, Time deadline) {
  while (true) {
    const Result<bool> done = is_done();
    if (!done || *done) return done;
    const Time now = MonotonicClock().now();
    if (now >= deadline) return false;
    if (const auto waited = until(now + std::chrono::milliseconds(20)); !waited)
      return std::unexpected(waited.error());
  }
}

}  // namespace gpushare
