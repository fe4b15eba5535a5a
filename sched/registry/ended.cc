// SPDX-License-Identifier: Apache-2.0
#include "sched/registry/ended.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "shmctl/base/aside.h"
#include "shmctl/base/log.h"

namespace gpushare {
namespace {

constexpr Nanos kFirstAsk = std::chrono::milliseconds(10), kLongestAsk = std::chrono::seconds(1);

}  // namespace

EndedProcesses::~EndedProcesses() {
  if (answer_.valid()) answer_.wait();
}

bool EndedProcesses::rest(Nanos patience) const {
  return !answer_.valid() || answer_.wait_for(patience) == std::future_status::ready;
}

void EndedProcesses::look() {
  if (answer_.valid() && answer_.wait_for(Nanos{}) == std::future_status::ready)
    take(answer_.get());
  if (answer_.valid() || !registry_.has_unsettled()) return;
  if (registry_.leavings() != leavings_) pause_ = {};
  if (pause_ == Nanos{} || clock_.now() >= next_) ask();
}

void EndedProcesses::ask() {
  leavings_ = registry_.leavings();
  as_of_ = registry_.last_serial();
  asked_ = registry_.unsettled();
  pause_ = std::clamp(2 * pause_, kFirstAsk, kLongestAsk);
  next_ = clock_.now() + pause_;
  if (calls_ == DriverCalls::kOnThreads)
    answer_ = start_aside<Answer>([&gpu = gpu_, asked = asked_] { return gpu.missing(asked); });
  if (!answer_.valid()) take(gpu_.missing(asked_));
}

// Where the driver cannot tell, all is gone with its process.
void EndedProcesses::take(const Answer& answer) {
  const std::vector<ObjectRef> asked = std::exchange(asked_, {});
  if (answer) return registry_.gone(*answer, as_of_);
  if (answer.error().code == std::errc::not_supported) return registry_.gone(asked, as_of_);
  if (!std::exchange(has_warned_, true))
    log_warning("what has ended may still be on the GPUs: {}", answer.error().message());
}

Time EndedProcesses::next() const {
  if (!registry_.has_unsettled()) return Time::max();
  return answer_.valid() ? clock_.now() + kFirstAsk : next_;
}

}  // namespace gpushare
