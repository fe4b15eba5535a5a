// SPDX-License-Identifier: Apache-2.0
// `fifo`: first in, first out. Of the highest class the job that arrived first runs until it ends;
// others run only while it does not want the GPU. It is the example of docs/writing_a_policy.md.
#pragma once

#include "sched/orders/order.h"

namespace gpushare {

class FifoPolicy final : public OrderPolicy {
 public:
  explicit FifoPolicy(const PolicyOptions& options) : OrderPolicy(options) {}

 private:
  // All keys stay equal, and equal ones go by arrival.
  void rank(std::span<Ranked>, Time) override {}
  // One that came before and wants the GPU again goes on.
  bool keeps(const Ranked&, const Ranked&, Time) override { return false; }
  // Time alone changes nothing.
  Time look_again(const JobView&, Time) override { return Time::max(); }
};

}  // namespace gpushare
