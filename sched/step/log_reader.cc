// SPDX-License-Identifier: Apache-2.0
#include "sched/step/log_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

// So many failures in a row, and the GPU is given up.
constexpr int kMostFailures = 20;

}  // namespace

class LogReader::Reading {
 public:
  void put(Result<SwitchBatch> batch) {
    {
      const std::lock_guard lock(mutex_);
      batch_ = std::move(batch);
    }
    arrived_.notify_one();
  }
  // nullopt: it has not arrived by then.
  std::optional<Result<SwitchBatch>> take(Time deadline) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_until(lock, deadline, [this] { return batch_.has_value(); })) return {};
    return std::exchange(batch_, std::nullopt);
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::optional<Result<SwitchBatch>> batch_;
};

LogReader::LogReader(State& state, const Surroundings& outside, LateAttach& late)
    : state_(state), outside_(outside), late_(late), logs_(driven_gpus(outside.gpu).size()) {
  for (uint32_t gpu = 0; gpu < logs_.size(); ++gpu)
    samplers_.push_back(outside.make_line(outside.gpu, gpu, outside.clock));
}

bool LogReader::may_ask(uint32_t gpu, Time now) const {
  return logs_[gpu].answers.may_try(now) && !state_.enforcer.is_stuck(gpu);
}

void LogReader::begin(Time now) {
  if (!has_log()) return;
  for (uint32_t gpu = 0; gpu < logs_.size(); ++gpu) {
    Log& log = logs_[gpu];
    if (log.reading != nullptr || is_closed(gpu) || !may_ask(gpu, now)) continue;
    log.reading = std::make_shared<Reading>();
    log.is_late = false;
    state_.enforcer.ask(gpu, [&driver = outside_.gpu, gpu, reading = log.reading]() {
      reading->put(driver.read_switches(gpu));
      return DriverAnswer();
    });
  }
}

bool LogReader::read(Time now) {
  // In the machine's time, also where the agent's is a simulation's.
  const Time deadline = MonotonicClock().now() + kPatience;
  bool has_answer = logs_.empty();
  for (uint32_t gpu = 0; gpu < logs_.size(); ++gpu) has_answer |= read(gpu, now, deadline);
  return has_answer;
}

// Returns false when the GPU does not answer. It is asked again after pauses.
bool LogReader::read(uint32_t gpu, Time now, Time deadline) {
  Log& log = logs_[gpu];
  if (leave_closed(gpu, now)) return false;
  // It comes back or not: to look for all GPUs again would not help.
  if (state_.enforcer.is_stuck(gpu)) {
    log.failures = kMostFailures;
    if (state_.gpu_problems[gpu].empty())
      give_up(gpu, Error{std::make_error_code(std::errc::timed_out), "control the GPU", {}});
    return true;
  }
  if (!has_log()) {
    note_answer(gpu);
    state_.accounting[gpu].consume(
        {.records = {}, .lost = 0, .complete_until = outside_.clock.now()});
    return true;
  }
  if (log.reading == nullptr) return false;  // it is not time to ask
  const bool may_wait = outside_.driver_calls == DriverCalls::kOnThreads && !log.is_late;
  const auto batch = log.reading->take(may_wait ? deadline : Time{});
  if (!batch) {
    log.is_late = true;
    return true;
  }
  log.reading.reset();
  return enter(gpu, now, *batch);
}

// Returns whether the GPU is not open. Nothing was ever asked of it.
bool LogReader::leave_closed(uint32_t gpu, Time now) {
  const std::string why = outside_.gpu.closed_because(gpu);
  const bool was_closed = std::exchange(logs_[gpu].is_closed, !why.empty());
  std::string& problem = state_.gpu_problems[gpu];
  if (!was_closed && !why.empty()) state_.gpu_problem_since[gpu] = now;
  if (was_closed && why.empty()) problem.clear();
  if (!why.empty()) problem = fmt::format("GPU {} {}", gpu, why);
  return !why.empty();
}

bool LogReader::enter(uint32_t gpu, Time now, const Result<SwitchBatch>& batch) {
  Log& log = logs_[gpu];
  if (!batch) {
    if (++log.failures == 1) log_warning("GPU {}: switch log: {}", gpu, batch.error().message());
    if (log.failures < kMostFailures) return false;
    (void)log.answers.failed(now, batch.error().message());
    if (log.failures == kMostFailures) give_up(gpu, batch.error());
    return false;
  }
  note_answer(gpu);
  state_.accounting[gpu].consume(*batch);
  for (const SwitchRecord& record : batch->records) {
    if (outside_.listener != nullptr) outside_.listener->on_switch(record);
    // One that runs and that no event told of has hidden its calls from the probe, or its events
    // are still being examined.
    if (record.is_start && record.pid > 0 && !state_.registry.is_on(record.pid, gpu))
      late_.look_for(record.pid, gpu);
  }
  // One whose channels are frozen, and that runs on others. Who was stopped runs to its end.
  for (const pid_t pid : state_.accounting[gpu].take_escaped()) {
    const Process* const process = state_.registry.find(pid);
    if (process != nullptr && state_.enforcer.has_frozen_channels({process->id, gpu}))
      late_.look_despite_freeze(pid);
  }
  return true;
}

void LogReader::note_answer(uint32_t gpu) {
  Log& log = logs_[gpu];
  if (std::exchange(log.failures, 0) < kMostFailures) return;
  log_info("GPU {} answers again", gpu);
  log.answers.succeeded();
  state_.gpu_problems[gpu].clear();
}

// Nobody stays frozen on a GPU whose use cannot be read; the other ones go on.
void LogReader::give_up(uint32_t gpu, const Error& error) {
  state_.gpu_problems[gpu] = fmt::format("GPU {} does not answer: {}", gpu, error.message());
  state_.gpu_problem_since[gpu] = outside_.clock.now();
  log_error("{}; it is left alone, and asked again now and then", state_.gpu_problems[gpu]);
  state_.enforcer.undo_all(gpu);
}

bool LogReader::is_read_until(uint32_t gpu, Time at) const {
  return !has_log() || !state_.gpu_problems[gpu].empty() ||
         state_.accounting[gpu].known_until() >= at;
}

void LogReader::sample(const std::function<bool(uint32_t gpu)>& is_wanted) {
  for (uint32_t gpu = 0; gpu < logs_.size(); ++gpu) {
    const bool tells = state_.accounting[gpu].needs_samples() || is_wanted(gpu);
    if (!tells || !state_.gpu_problems[gpu].empty() || is_closed(gpu) || logs_[gpu].is_sampled ||
        state_.enforcer.is_stuck(gpu))
      continue;
    logs_[gpu].is_sampled = true;
    samplers_[gpu]->ask([this, gpu, &driver = outside_.gpu]() -> DriverAnswer {
      return [this, gpu, samples = driver.utilisation(gpu)] {
        logs_[gpu].is_sampled = false;
        if (samples) state_.accounting[gpu].sample(*samples, outside_.clock.now());
      };
    });
  }
  take_samples();
}

bool LogReader::rest(Nanos patience) {
  return std::ranges::all_of(samplers_,
                             [&](const auto& sampler) { return sampler->wait(patience); });
}

void LogReader::take_samples() {
  for (const auto& sampler : samplers_)
    for (const DriverAnswer& answer : sampler->take_done().answers) answer();
}

}  // namespace gpushare
