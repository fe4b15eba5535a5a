// SPDX-License-Identifier: Apache-2.0
// A lock for the shim's own data. Zero bytes are a free lock, so that it can lie in memory that
// mmap() has just returned. Any thread; not for signal handlers, whose own thread may hold it.
#pragma once

#include <atomic>

#include "intercept/shim/link/backoff.h"

namespace gpushare::shim {

class SpinLock {
 public:
  void lock() {
    for (Backoff wait; held_.exchange(true, std::memory_order_acquire);) wait.pause();
  }
  bool try_lock() { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_;
};

// Holds the lock while it lives.
class Locked {
 public:
  explicit Locked(SpinLock& lock) : lock_(lock) { lock_.lock(); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  SpinLock& lock_;
};

// Holds the lock while it lives if no thread held it before; never waits. Ask is_held().
class TryLocked {
 public:
  explicit TryLocked(SpinLock& lock) : lock_(lock), is_held_(lock.try_lock()) {}
  ~TryLocked() {
    if (is_held_) lock_.unlock();
  }
  TryLocked(const TryLocked&) = delete;
  TryLocked& operator=(const TryLocked&) = delete;
  bool is_held() const { return is_held_; }

 private:
  SpinLock& lock_;
  const bool is_held_;
};

}  // namespace gpushare::shim
