// SPDX-License-Identifier: Apache-2.0
// LateLine: a line to the driver that answers after a chosen time, in the time of the test's clock:
// as while other programs hold the driver's lock, and the same in every run. What is asked for is
// done when it is due and somebody takes what is done.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "sched/enforce/driver_line.h"

namespace gpushare::test {

class LateLine final : public DriverLine {
 public:
  // `delay` may be changed at any time, for what is asked from then on.
  LateLine(Gpu& gpu, uint32_t index, const Clock& clock, const Nanos& delay)
      : line_(make_driver_line(DriverCalls::kInStep, gpu, index, clock)),
        clock_(clock),
        delay_(delay) {}

  void add(Switches switches) override {
    later([this, s = std::move(switches)]() mutable { line_->add(std::move(s)); });
  }
  void ask(DriverQuestion question) override {
    later([this, q = std::move(question)]() mutable { line_->ask(std::move(q)); });
  }
  void call_off(const ControlKey&) override {}  // the driver will find out
  void set(std::vector<SliceOrder> orders) override { slices_ = {std::move(orders), due()}; }
  void restore(std::vector<SliceOrder> orders) override {
    later([this, o = std::move(orders)]() mutable { line_->restore(std::move(o)); });
  }
  bool withdraw(const ControlKey& key) override {
    std::erase_if(slices_.first, [&](const SliceOrder& order) { return order.key == key; });
    return waiting_.empty();
  }
  DoneDeeds take_done() override {
    do_until(clock_.now());
    return line_->take_done();
  }
  bool is_stuck() const override { return false; }
  bool wait(Nanos) override {
    do_until(Time::max());
    return true;
  }

 private:
  Time due() const { return clock_.now() + delay_; }
  void later(std::move_only_function<void()> deed) {
    waiting_.emplace_back(due(), std::move(deed));
  }
  void do_until(Time now) {
    while (!waiting_.empty() && waiting_.front().first <= now) {
      auto deed = std::move(waiting_.front().second);
      waiting_.pop_front();
      deed();
    }
    if (!slices_.first.empty() && slices_.second <= now)
      line_->set(std::exchange(slices_.first, {}));
  }

  const std::unique_ptr<DriverLine> line_;
  const Clock& clock_;
  const Nanos& delay_;
  std::deque<std::pair<Time, std::move_only_function<void()>>> waiting_;
  std::pair<std::vector<SliceOrder>, Time> slices_;
};

inline MakeDriverLine late_lines(const Nanos& delay) {
  return [&delay](Gpu& gpu, uint32_t index, const Clock& clock) {
    return std::make_unique<LateLine>(gpu, index, clock, delay);
  };
}

}  // namespace gpushare::test
