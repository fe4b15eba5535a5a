// SPDX-License-Identifier: Apache-2.0
// EventLoop: where the agent waits, in one place and on one thread: for the instant of the next
// step, for descriptors, for signals, and for systemd's watchdog. Callbacks run on that thread.
#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string_view>

#include "shmctl/base/clock.h"

namespace gpushare {

// Calls back once when a descriptor is readable, again each time it is told to wait.
class Waiter {
 public:
  // Waits on a copy: `fd` stays its owner's.
  Waiter(asio::io_context& loop, int fd, std::function<void()> then);
  void wait();

 private:
  asio::posix::stream_descriptor file_;
  const std::function<void()> then_;
  bool is_waiting_ = false;
};

// Calls back once at an instant. It is not bound by EventLoop::kLeastGap.
class Alarm {
 public:
  Alarm(asio::io_context& loop, std::function<void()> then)
      : timer_(loop), then_(std::move(then)) {}
  // In the place of what was set before; Time::max(): not at all.
  void set(Time when);

 private:
  asio::steady_timer timer_;
  const std::function<void()> then_;
};

class EventLoop {
 public:
  // However many events come, steps are no closer than this.
  static constexpr Nanos kLeastGap = std::chrono::milliseconds(1);

  // `step` is called with its instant. `signal`: of SIGTERM, SIGINT, SIGHUP and SIGUSR1; false: no
  // further one is waited for.
  EventLoop(std::function<void(Time)> step, std::function<bool(int)> signal);

  // Tells systemd that the agent is there, feeds its watchdog, and waits for signals.
  void start();
  // Returns after stop().
  void run() { loop_.run(); }
  void stop() { loop_.stop(); }

  // The next step is no later than this. What has been asked for before still holds.
  void wake_at(Time when);
  // As soon as kLeastGap allows.
  void wake_now();
  // The same, each time the descriptor is readable and somebody waits for it.
  std::unique_ptr<Waiter> wake_on(int fd);

  asio::io_context& io() { return loop_; }

 private:
  void wait_for_signal();
  void feed_watchdog();

  const std::function<void(Time)> step_;
  const std::function<bool(int)> signal_;
  const MonotonicClock clock_;
  asio::io_context loop_{1};
  asio::steady_timer timer_{loop_}, watchdog_{loop_};
  asio::signal_set signals_;
  Time last_step_{}, wakes_at_{Time::max()};
};

}  // namespace gpushare
