// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/event_loop.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>

#include "sched/daemon/systemd.h"

namespace gpushare {
namespace {
using ErrorCode = std::error_code;
}

Waiter::Waiter(asio::io_context& loop, int fd, std::function<void()> then)
    : file_(loop, ::dup(fd)), then_(std::move(then)) {}

void Waiter::wait() {
  if (std::exchange(is_waiting_, true)) return;
  file_.async_wait(asio::posix::stream_descriptor::wait_read, [this](ErrorCode error) {
    if (error) return;  // also when it is destroyed: nothing may be touched then
    is_waiting_ = false;
    then_();
  });
}

void Alarm::set(Time when) {
  timer_.cancel();
  if (when == Time::max()) return;
  timer_.expires_at(when);
  timer_.async_wait([this](ErrorCode error) {
    if (!error) then_();
  });
}

EventLoop::EventLoop(std::function<void(Time)> step, std::function<bool(int)> signal)
    : step_(std::move(step)), signal_(std::move(signal)), signals_(loop_, SIGTERM, SIGINT) {
  signals_.add(SIGHUP);
  signals_.add(SIGUSR1);
}

void EventLoop::start() {
  wait_for_signal();
  feed_watchdog();
  notify_systemd("READY=1");
}

void EventLoop::wake_at(Time when) {
  const Time soonest = std::max(when, last_step_ + kLeastGap);
  if (soonest >= wakes_at_ && wakes_at_ > clock_.now()) return;
  wakes_at_ = soonest;
  timer_.expires_at(soonest);
  timer_.async_wait([this](ErrorCode error) {
    if (error) return;  // set anew
    wakes_at_ = Time::max();
    last_step_ = clock_.now();
    step_(last_step_);
  });
}

void EventLoop::wake_now() { wake_at(clock_.now()); }

std::unique_ptr<Waiter> EventLoop::wake_on(int fd) {
  return std::make_unique<Waiter>(loop_, fd, [this] { wake_now(); });
}

void EventLoop::wait_for_signal() {
  signals_.async_wait([this](ErrorCode error, int signal) {
    if (!error && signal_(signal)) wait_for_signal();
  });
}

void EventLoop::feed_watchdog() {
  const std::optional<Micros> interval = watchdog_interval();
  if (!interval) return;
  notify_systemd("WATCHDOG=1");
  watchdog_.expires_after(*interval);
  watchdog_.async_wait([this](ErrorCode error) {
    if (!error) feed_watchdog();
  });
}

}  // namespace gpushare
