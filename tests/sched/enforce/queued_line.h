// SPDX-License-Identifier: Apache-2.0
// QueuedLine: the queue of the line that has a thread (driver_line.h), without the thread: at each
// call of the agent's a random part of what waits is done, so that whatever order of a thread's
// steps and the agent's is possible comes about, and comes again with the same numbers. Now and
// then the driver does not come back for seconds.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sched/enforce/driver_line.h"

namespace gpushare::test {

// How a machine's lines go on. `below(n)` is random; all outlive the lines.
struct QueuePace {
  std::function<uint32_t(uint32_t)> below;
  bool may_stall = true;
  bool answers = true;  // otherwise no call comes back
};

class QueuedLine final : public DriverLine {
 public:
  QueuedLine(Gpu& gpu, uint32_t index, const Clock& clock, const QueuePace& pace)
      : gpu_(gpu), index_(index), clock_(clock), pace_(pace) {}

  void add(Switches switches) override {
    switches_.add(std::move(switches));
    go_on();
  }
  void ask(DriverQuestion question) override {
    questions_.push_back(std::move(question));
    go_on();
  }
  void call_off(const ControlKey& key) override {
    called_off_.insert(key);
    const auto at = std::ranges::find(switches_.freezes, key, &FreezeDeed::key);
    if (at == switches_.freezes.end()) return;
    at->fail_as_gone(clock_.now());
    done_.freezes.push_back(std::move(*at));
    switches_.freezes.erase(at);
  }
  void set(std::vector<SliceOrder> orders) override {
    std::erase_if(orders, [this](const SliceOrder& order) { return is_done(order); });
    slices_ = {std::make_move_iterator(orders.begin()), std::make_move_iterator(orders.end())};
    go_on();
  }
  void restore(std::vector<SliceOrder> orders) override {
    std::ranges::move(orders, std::back_inserter(restores_));
    go_on();
  }
  bool withdraw(const ControlKey& key) override {
    const auto is_of_it = [&](const SliceOrder& order) { return order.key == key; };
    std::erase_if(slices_, is_of_it);
    return !(setting_ && is_of_it(*setting_)) && std::ranges::none_of(restores_, is_of_it) &&
           std::ranges::none_of(done_.slices, is_of_it);
  }
  DoneDeeds take_done() override {
    go_on();
    return std::exchange(done_, {});
  }
  bool is_stuck() const override { return under_way_ && clock_.now() - began_ >= kStuck; }
  bool wait(Nanos) override {
    while (under_way_ || has_work()) half_a_step();
    return true;
  }

  // For a line whose agent has died: the call that its thread is in takes effect when it comes
  // back.
  bool has_call() const { return static_cast<bool>(under_way_); }
  void come_back() { std::exchange(under_way_, nullptr)(); }

 private:
  bool has_work() const {
    return !switches_.is_empty() || !questions_.empty() || !restores_.empty() || !slices_.empty();
  }
  bool is_done(const SliceOrder& order) const {
    const auto is_same = [&](const SliceOrder& other) {
      return other.kind == order.kind && other.ref == order.ref && other.slice == order.slice &&
             other.own_slice_count == order.own_slice_count;
    };
    return (setting_ && is_same(*setting_)) || std::ranges::any_of(done_.slices, is_same);
  }
  void go_on() {
    if (is_going_on_) return;  // a question asks something
    for (uint32_t steps = pace_.below(6); steps > 0 && (under_way_ || has_work()); --steps) {
      if (under_way_ && !pace_.answers) return;
      if (pace_.may_stall && clock_.now() < stalled_until_) return;
      if (pace_.may_stall && pace_.below(300) == 0)
        stalled_until_ = clock_.now() + std::chrono::milliseconds(pace_.below(4000));
      is_going_on_ = true;
      half_a_step();
      is_going_on_ = false;
    }
  }
  // A call begins, or comes back.
  void half_a_step() {
    if (under_way_) return std::exchange(under_way_, nullptr)();
    began_ = clock_.now();
    if (!switches_.is_empty()) {
      called_off_.clear();
      under_way_ = [this, next = std::exchange(switches_, {})]() mutable {
        carry_out(gpu_, index_, next, clock_,
                  [this](const ControlKey& key) { return called_off_.contains(key); });
        std::ranges::move(next.freezes, std::back_inserter(done_.freezes));
        std::ranges::move(next.thaws, std::back_inserter(done_.thaws));
      };
    } else if (!questions_.empty()) {
      under_way_ = [this, question = std::move(questions_.front())] {
        if (DriverAnswer answer = question()) done_.answers.push_back(std::move(answer));
      };
      questions_.pop_front();
    } else {
      std::deque<SliceOrder>& from = restores_.empty() ? slices_ : restores_;
      setting_ = std::move(from.front());
      from.pop_front();
      under_way_ = [this] {
        if (setting_->kind == SliceOrder::Kind::kRead) {
          const Result<Micros> present = gpu_.slice(setting_->ref);
          setting_->result = present ? Result<>() : std::unexpected(present.error());
          setting_->slice = present.value_or(Micros(0));
        } else {
          setting_->result = gpu_.set_slice(setting_->ref, setting_->slice);
        }
        setting_->at = clock_.now();
        done_.slices.push_back(std::move(*setting_));
        setting_.reset();
      };
    }
  }

  Gpu& gpu_;
  const uint32_t index_;
  const Clock& clock_;
  const QueuePace& pace_;
  Switches switches_;
  std::set<ControlKey> called_off_;
  std::deque<DriverQuestion> questions_;
  std::deque<SliceOrder> restores_, slices_;
  std::optional<SliceOrder> setting_;
  std::move_only_function<void()> under_way_;
  DoneDeeds done_;
  Time began_{}, stalled_until_{};
  bool is_going_on_ = false;
};

inline MakeDriverLine queued_lines(const QueuePace& pace) {
  return [&pace](Gpu& gpu, uint32_t index, const Clock& clock) {
    return std::make_unique<QueuedLine>(gpu, index, clock, pace);
  };
}

}  // namespace gpushare::test
