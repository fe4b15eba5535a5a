// SPDX-License-Identifier: Apache-2.0
#include "sched/enforce/driver_line.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "shmctl/base/aside.h"
#include "shmctl/base/last_threads.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

void carry_out(Gpu& gpu, const Clock& clock, SliceOrder& order) {
  if (order.kind == SliceOrder::Kind::kRead) {
    const Result<Micros> present = gpu.slice(order.ref);
    order.result = present ? Result<>() : std::unexpected(present.error());
    order.slice = present.value_or(Micros(0));
  } else {
    order.result = gpu.set_slice(order.ref, order.slice);
  }
  order.at = clock.now();
}

void note(DoneDeeds& done, Switches switches) {
  std::ranges::move(switches.freezes, std::back_inserter(done.freezes));
  std::ranges::move(switches.thaws, std::back_inserter(done.thaws));
}

class LineInStep final : public DriverLine {
 public:
  LineInStep(Gpu& gpu, uint32_t index, const Clock& clock)
      : gpu_(gpu), index_(index), clock_(clock) {}

  void add(Switches switches) override {
    carry_out(gpu_, index_, switches, clock_, [](const ControlKey&) { return false; });
    note(done_, std::move(switches));
  }
  void ask(DriverQuestion question) override {
    if (DriverAnswer answer = question()) done_.answers.push_back(std::move(answer));
  }
  void call_off(const ControlKey&) override {}
  void set(std::vector<SliceOrder> orders) override {
    for (SliceOrder& order : orders) {
      carry_out(gpu_, clock_, order);
      done_.slices.push_back(std::move(order));
    }
  }
  void restore(std::vector<SliceOrder> orders) override { set(std::move(orders)); }
  bool withdraw(const ControlKey&) override { return true; }
  DoneDeeds take_done() override { return std::exchange(done_, {}); }
  bool is_stuck() const override { return false; }
  bool wait(Nanos) override { return true; }

 private:
  Gpu& gpu_;
  const uint32_t index_;
  const Clock& clock_;
  DoneDeeds done_;
};

class LineOnThread final : public DriverLine {
 public:
  LineOnThread(Gpu& gpu, uint32_t index, const Clock& clock)
      : gpu_(gpu), index_(index), clock_(clock) {
    thread_ = start_quietly([this, index] {
      name_gpu_thread(index);
      work();
    });
  }
  ~LineOnThread() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(Switches switches) override {
    {
      const std::lock_guard lock(mutex_);
      switches_.add(std::move(switches));
    }
    changed_.notify_all();
  }
  void ask(DriverQuestion question) override {
    {
      const std::lock_guard lock(mutex_);
      questions_.push_back(std::move(question));
    }
    changed_.notify_all();
  }
  void call_off(const ControlKey& key) override {
    const std::lock_guard lock(mutex_);
    called_off_.insert(key);  // if it is under way
    const auto is_of_it = [&](const FreezeDeed& deed) { return deed.key == key; };
    const auto at = std::ranges::find_if(switches_.freezes, is_of_it);
    if (at == switches_.freezes.end()) return;
    at->fail_as_gone(clock_.now());
    done_.freezes.push_back(std::move(*at));
    switches_.freezes.erase(at);
  }
  void set(std::vector<SliceOrder> orders) override {
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(orders, [this](const SliceOrder& order) { return is_done(order); });
      slices_ = {std::make_move_iterator(orders.begin()), std::make_move_iterator(orders.end())};
    }
    changed_.notify_all();
  }
  void restore(std::vector<SliceOrder> orders) override {
    {
      const std::lock_guard lock(mutex_);
      std::ranges::move(orders, std::back_inserter(restores_));
    }
    changed_.notify_all();
  }

  bool withdraw(const ControlKey& key) override {
    const std::lock_guard lock(mutex_);
    const auto is_of_it = [&](const SliceOrder& order) { return order.key == key; };
    std::erase_if(slices_, is_of_it);
    return !(setting_ && is_of_it(*setting_)) && std::ranges::none_of(restores_, is_of_it) &&
           std::ranges::none_of(done_.slices, is_of_it);
  }

  DoneDeeds take_done() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }

  bool is_stuck() const override {
    const std::lock_guard lock(mutex_);
    return is_busy_ && clock_.now() - began_ >= kStuck;
  }

  bool wait(Nanos patience) override {
    std::unique_lock lock(mutex_);
    return rested_.wait_for(lock, patience, [this] { return !is_busy_ && !has_work(); });
  }

 private:
  // Or is being done: who asked does not know yet.
  bool is_done(const SliceOrder& order) const {
    const auto is_same = [&](const SliceOrder& other) {
      return other.kind == order.kind && other.ref == order.ref && other.slice == order.slice &&
             other.own_slice_count == order.own_slice_count;
    };
    return (setting_ && is_same(*setting_)) || std::ranges::any_of(done_.slices, is_same);
  }
  bool has_work() const {
    return !switches_.is_empty() || !questions_.empty() || !restores_.empty() || !slices_.empty();
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_ending_ || has_work(); });
      if (is_ending_) return;
      is_busy_ = true;
      began_ = clock_.now();
      if (!switches_.is_empty())
        switch_next(lock);
      else if (!questions_.empty())
        ask_next(lock);
      else
        set_next(lock, restores_.empty() ? slices_ : restores_);
      is_busy_ = false;
      if (!has_work()) rested_.notify_all();
    }
  }

  void switch_next(std::unique_lock<std::mutex>& lock) {
    Switches next = std::exchange(switches_, {});
    called_off_.clear();
    lock.unlock();
    const auto is_moot = [this](const ControlKey& key) {
      const std::lock_guard looking(mutex_);
      return called_off_.contains(key);
    };
    carry_out(gpu_, index_, next, clock_, is_moot);
    lock.lock();
    note(done_, std::move(next));
  }

  void ask_next(std::unique_lock<std::mutex>& lock) {
    DriverQuestion next = std::move(questions_.front());
    questions_.pop_front();
    lock.unlock();
    DriverAnswer answer = next();
    next = nullptr;  // what it owns may be closed, which is a call of the driver as well
    lock.lock();
    if (answer) done_.answers.push_back(std::move(answer));
  }

  void set_next(std::unique_lock<std::mutex>& lock, std::deque<SliceOrder>& from) {
    SliceOrder next = std::move(from.front());
    from.pop_front();
    setting_ = next;
    lock.unlock();
    carry_out(gpu_, clock_, next);
    lock.lock();
    setting_.reset();
    done_.slices.push_back(std::move(next));
  }

  Gpu& gpu_;
  const uint32_t index_;
  const Clock& clock_;

  mutable std::mutex mutex_;  // of all below but the thread
  std::condition_variable changed_, rested_;
  Switches switches_;
  std::set<ControlKey> called_off_;  // since the switches under way have begun
  std::deque<DriverQuestion> questions_;
  std::deque<SliceOrder> restores_, slices_;
  DoneDeeds done_;
  std::optional<SliceOrder> setting_;  // is being set
  bool is_busy_ = false, is_ending_ = false;
  Time began_{};  // the call under way

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<DriverLine> make_driver_line(DriverCalls calls, Gpu& gpu, uint32_t index,
                                             const Clock& clock) {
  try {
    if (calls == DriverCalls::kOnThreads) return std::make_unique<LineOnThread>(gpu, index, clock);
  } catch (const std::system_error& error) {
    log_warning("GPU {}: the agent waits for the driver itself: {}", index, error.what());
  }
  return std::make_unique<LineInStep>(gpu, index, clock);
}

MakeDriverLine driver_lines(DriverCalls calls) {
  return [calls](Gpu& gpu, uint32_t index, const Clock& clock) {
    return make_driver_line(calls, gpu, index, clock);
  };
}

}  // namespace gpushare
