// SPDX-License-Identifier: Apache-2.0
// `fifo`: of the highest class the job that arrived first runs until it ends; others run only while
// it does not want the GPU. It is the example of docs/writing_a_policy.md.
#pragma once

#include "sched/orders/order.h"

namespace gpushare {

class FifoOrder final : public OrderPolicy {
 public:
  explicit FifoOrder(const PolicyOptions& options) : OrderPolicy(options) {}

 private:
  // All keys stay equal: the order is that of arrival.
  void rank(std::span<Ranked>) override {}
  bool keeps(const Ranked&, const Ranked&, Time) override { return false; }
  Time look_again(const JobView&, Time) override { return Time::max(); }
};

}  // namespace gpushare
