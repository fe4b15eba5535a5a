// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/gpus/joining_gpus.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "sched/enforce/driver_line.h"
#include "shmctl/base/log.h"
#include "shmctl/plane/layout.h"

namespace gpushare {
namespace {

constexpr const char* kHangs = "does not answer: it has been opened without an end";

}  // namespace

JoiningGpus::JoiningGpus(std::shared_ptr<Gpu> listed, const Clock& clock,
                         std::function<Result<>(uint32_t gpu)> may_open,
                         const std::function<void()>& told)
    : listed_(std::move(listed)),
      clock_(clock),
      may_open_(std::move(may_open)),
      infos_(listed_->gpus().begin(), listed_->gpus().end()),
      support_(listed_->support()) {
  for (const GpuInfo& info : infos_) begin(info.index, ones_.emplace_back(told));
}

void JoiningGpus::begin(uint32_t gpu, One& one) {
  const Time now = clock_.now();
  if (const Result<> may = may_open_(gpu); !may) {
    one.problem = "is not open: " + may.error().message();
    one.again_at = now + kAgainSoon;
    return;
  }
  one.opening.begin([listed = listed_, gpu] { return listed->open(gpu); }, now);
}

std::vector<uint32_t> JoiningGpus::look() {
  std::vector<uint32_t> joined;
  for (uint32_t gpu = 0; gpu < ones_.size(); ++gpu) {
    One& one = ones_[gpu];
    if (one.is_open) continue;
    if (!one.answer) one.answer = one.opening.take();
    if (one.answer && take(gpu, one)) joined.push_back(gpu);
    const bool is_idle = !one.is_open && !one.opening.is_under_way();
    if (is_idle && clock_.now() >= one.again_at) begin(gpu, one);
  }
  if (has_one())
    for (uint32_t gpu = 0; gpu < ones_.size(); ++gpu) say(gpu, ones_[gpu]);
  return joined;
}

// Returns whether the GPU is open now.
bool JoiningGpus::take(uint32_t gpu, One& one) {
  const Result<OpenedGpu> answer = std::move(*std::exchange(one.answer, std::nullopt));
  if (!answer) {
    one.problem = "is not open: " + answer.error().message();
    one.again_at = clock_.now() + kAgain;
    return false;
  }
  one.is_open = true;
  one.has_log = answer->no_log_reason.empty();
  one.problem.clear();
  infos_[gpu] = answer->info;
  if (support_.reason.empty()) support_.reason = answer->no_log_reason;
  return true;
}

bool JoiningGpus::hangs(const One& one) const {
  return one.opening.is_under_way() && clock_.now() - one.opening.since() >= DriverLine::kStuck;
}

// Empty also while nothing has come of the first try.
std::string JoiningGpus::problem_of(const One& one) const {
  return hangs(one) ? kHangs : one.problem;
}

// Each thing once.
void JoiningGpus::say(uint32_t gpu, One& one) const {
  const std::string now = problem_of(one);
  if (now.empty() && !one.is_open) return;
  if (std::exchange(one.said, now) == now) return;
  if (!now.empty())
    log_error("GPU {} {}; it is looked for again", gpu, now);
  else if (gpu < kMaxGpus)
    log_info("GPU {} is open: it is shared from now on", gpu);
}

Time JoiningGpus::next() const {
  Time next = Time::max();
  for (const One& one : ones_) {
    if (one.is_open || hangs(one)) continue;
    next = std::min(
        next, one.opening.is_under_way() ? one.opening.since() + DriverLine::kStuck : one.again_at);
  }
  return next;
}

void JoiningGpus::wait(Nanos patience) {
  const MonotonicClock clock;  // the machine's time, also where ours is a simulation's
  const Time until = clock.now() + patience;
  for (One& one : ones_)
    if (!one.is_open && !one.answer)
      one.answer = one.opening.take(std::max(until - clock.now(), Nanos{}));
}

bool JoiningGpus::has_one() const { return std::ranges::any_of(ones_, &One::is_open); }

bool JoiningGpus::is_expected(uint32_t gpu) const {
  return ones_[gpu].is_open || problem_of(ones_[gpu]).empty();
}

bool JoiningGpus::has_none() const {
  return std::ranges::none_of(
      ones_, [](const One& one) { return one.is_open || one.opening.is_under_way(); });
}

bool JoiningGpus::has_hanging() const {
  return std::ranges::any_of(ones_, [this](const One& one) { return hangs(one); });
}

std::string JoiningGpus::first_problem() const {
  for (uint32_t gpu = 0; gpu < ones_.size(); ++gpu)
    if (const std::string why = problem_of(ones_[gpu]); !why.empty())
      return fmt::format("GPU {} {}", gpu, why);
  return {};
}

void JoiningGpus::settle_support() {
  support_.has_switch_log =
      listed_->support().has_switch_log || std::ranges::any_of(ones_, &One::has_log);
}

std::string JoiningGpus::closed_because(uint32_t gpu) const {
  if (gpu >= ones_.size() || ones_[gpu].is_open) return {};
  const std::string problem = problem_of(ones_[gpu]);
  return problem.empty() ? "is being opened" : problem;
}

}  // namespace gpushare
