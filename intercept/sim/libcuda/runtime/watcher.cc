// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/libcuda/runtime/watcher.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace gpushare::standin {
namespace {

constexpr std::chrono::milliseconds kPeriod{1};

}  // namespace

void Watcher::watch(const Endless& kernel) {
  std::unique_lock lock(mutex_);
  kernels_.push_back(kernel);
  start(lock);
}

void Watcher::forget(uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kernels_, [&](const Endless& kernel) { return kernel.sequence == sequence; });
}

void Watcher::expect() {
  std::unique_lock lock(mutex_);
  ++expected_;
  start(lock);
}

void Watcher::done() {
  const std::lock_guard lock(mutex_);
  --expected_;
}

void Watcher::stop_when(std::function<bool()> is_fulfilled, uint64_t gate) {
  if (is_fulfilled()) {
    static_cast<void>(client_.stop(gate));  // fails only when the server is gone
    return done();
  }
  const std::lock_guard lock(mutex_);
  conditions_.push_back({std::move(is_fulfilled), gate});
}

void Watcher::due(CUhostFn function, void* data, uint64_t gate) {
  const std::lock_guard lock(mutex_);
  due_.push_back({function, data, gate});
  changed_.notify_all();
}

// The program's threads handle its signals, so this thread blocks them all.
void Watcher::start(std::unique_lock<std::mutex>& lock) {
  changed_.notify_all();
  if (std::exchange(is_running_, true)) return;
  lock.unlock();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Watcher::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !kernels_.empty() || expected_ > 0; });
    const auto functions = std::exchange(due_, {});
    expected_ -= functions.size();
    lock.unlock();
    for (const HostFunction& each : functions) {
      each.function(each.data);
      static_cast<void>(client_.stop(each.gate));  // fails only when the server is gone
    }
    static_cast<void>(client_.poll());
    look_at_conditions();
    update_counters();
    lock.lock();
    if (due_.empty()) changed_.wait_for(lock, kPeriod);
  }
}

void Watcher::look_at_conditions() {
  std::vector<uint64_t> open;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(conditions_, [&](const Condition& each) {
      if (!each.is_fulfilled()) return false;
      open.push_back(each.gate);
      --expected_;
      return true;
    });
  }
  for (const uint64_t gate : open) static_cast<void>(client_.stop(gate));
}

void Watcher::update_counters() {
  std::vector<Endless> kernels;
  {
    const std::lock_guard lock(mutex_);
    kernels = kernels_;
  }
  for (const Endless& kernel : kernels) {
    const auto progress = client_.query(kernel.sequence);
    if (!progress || progress->state != sim::WorkState::kRunning) continue;
    const std::lock_guard lock(mutex_);
    const bool is_current = std::ranges::any_of(
        kernels_, [&](const Endless& each) { return each.sequence == kernel.sequence; });
    if (!is_current) continue;  // it has ended
    const uint64_t turns = progress->executed_ns / kernel.turn_ns;
    for (uint64_t block = 0; block < kernel.blocks; ++block)
      std::atomic_ref(kernel.memory.turns[block]).store(turns, std::memory_order_relaxed);
    // Pairs with the release store of a program that asks it to stop.
    if (std::atomic_ref(*const_cast<uint32_t*>(kernel.memory.stop))
            .load(std::memory_order_acquire) != 0)
      static_cast<void>(client_.stop(kernel.sequence));
  }
}

}  // namespace gpushare::standin
