// SPDX-License-Identifier: Apache-2.0
#include "sched/slo/decider.h"

#include <chrono>
#include <future>
#include <utility>

#include "shmctl/base/aside.h"

namespace gpushare {
namespace {

using Decided = SloDecider::Decided;

Decided decide(SloSizer& sizer, std::vector<SloTenant> tenants,
               const std::vector<double>& targets) {
  Decided decided{.tenants = std::move(tenants), .shares = {}, .longest_services = {}};
  decided.shares = sizer.decide(decided.tenants);
  for (std::size_t i = 0; i < decided.tenants.size(); ++i)
    decided.longest_services.push_back(sizer.longest_service(decided.tenants[i].id, targets[i]));
  return decided;
}

class Decider final : public SloDecider {
 public:
  Decider(uint32_t groups, SloDecisions where)
      : where_(where), sizer_(std::make_shared<SloSizer>(groups)) {}

  void begin(std::vector<SloTenant> tenants, std::vector<double> targets) override {
    if (where_ == SloDecisions::kAside && tenants.size() > kFew)
      answer_ = start_aside<Decided>(
          [sizer = sizer_, tenants, targets] { return decide(*sizer, tenants, targets); });
    if (!answer_.valid()) decided_ = decide(*sizer_, std::move(tenants), targets);
  }
  bool is_busy() const override { return decided_ || answer_.valid(); }
  std::optional<Decided> take() override {
    if (decided_) return std::exchange(decided_, std::nullopt);
    if (!answer_.valid() || answer_.wait_for(Nanos{}) != std::future_status::ready)
      return std::nullopt;
    return answer_.get();
  }

 private:
  const SloDecisions where_;
  const std::shared_ptr<SloSizer> sizer_;  // the thread's, while `answer_` is valid
  std::future<Decided> answer_;
  std::optional<Decided> decided_;
};

}  // namespace

std::unique_ptr<SloDecider> make_slo_decider(uint32_t groups, SloDecisions where) {
  return std::make_unique<Decider>(groups, where);
}

}  // namespace gpushare
