// SPDX-License-Identifier: Apache-2.0
#include "shmctl/program/wait.h"

#include <algorithm>
#include <cerrno>

namespace gpushare {
namespace {

constexpr Nanos kBetweenLooks = std::chrono::milliseconds(2);

}  // namespace

Wait::Wait() { ::sigemptyset(&signals_); }

Wait Wait::until_interrupted() {
  Wait wait;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&wait.signals_, signal);
  ::pthread_sigmask(SIG_BLOCK, &wait.signals_, nullptr);
  return wait;
}

Result<> Wait::until(Time instant) {
  const MonotonicClock clock;
  while (!is_interrupted_) {
    const timespec left = timespec_of(std::max(instant - clock.now(), Nanos{}));
    if (::sigtimedwait(&signals_, nullptr, &left) > 0) is_interrupted_ = true;
    if (!is_interrupted_ && clock.now() >= instant) return {};
  }
  return make_error(std::errc::operation_canceled, "wait");
}

Result<bool> Wait::until(const std::function<Result<bool>()>& is_done, Nanos limit) {
  const Time deadline = MonotonicClock().now() + limit;
  while (true) {
    const Result<bool> done = is_done();
    if (!done || *done) return done;
    const Time now = MonotonicClock().now();
    if (now >= deadline) return false;
    if (const auto waited = until(std::min(now + kBetweenLooks, deadline)); !waited)
      return std::unexpected(waited.error());
  }
}

bool eventually(const std::function<bool()>& is_so, Nanos limit) {
  return Wait().until([&]() -> Result<bool> { return is_so(); }, limit).value_or(false);
}

timespec timespec_of(Nanos duration) {
  return {.tv_sec = duration.count() / 1'000'000'000, .tv_nsec = duration.count() % 1'000'000'000};
}

}  // namespace gpushare
