// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/run.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpushare {
namespace {

using std::chrono::seconds;

constexpr const char* kRun = "run the programs";
constexpr unsigned kSamplesAlone = 200;
constexpr Nanos kAlone = seconds(30), kToGpu = seconds(30), kToEnd = seconds(30);
constexpr Nanos kWarmUp = seconds(2), kRest = seconds(1);
// The time from the start of the programs to their work is this and twice what the first one needed
// alone; what all needed, when they are started again.
constexpr Nanos kToBegin = std::chrono::milliseconds(500);
constexpr int kMostStarts = 4;
constexpr Nanos kLongestTrace = seconds(5);

Time now() { return MonotonicClock().now(); }

class Run {
 public:
  Run(DemoSetup& setup, Wait& wait, const DemoOptions& options, const DemoProgress& progress)
      : setup_(setup), wait_(wait), options_(options), progress_(progress) {}

  Result<DemoResult> run();

 private:
  Result<> measure_alone();
  Result<> start_in_time();
  Result<> start_programs(Nanos ahead);
  Result<> await_gpu();
  Result<> measure();
  Result<> finish();

  Result<> await_end(Child& process, Nanos patience);
  Result<WorkloadResult> result_of(const Child& process) const;
  Result<> check_all();
  Result<DemoReading> read() const;

  DemoSetup& setup_;
  Wait& wait_;
  const DemoOptions& options_;
  const DemoProgress& progress_;
  std::vector<Child> programs_;  // by number
  std::optional<Child> trace_;
  DemoSchedule schedule_{};
  Nanos to_load_{};  // what a program needs before it can work: CUDA, its kernels
  uint32_t gpu_ = 0;
  DemoResult result_{};
};

Result<DemoResult> Run::run() {
  using Step = Result<> (Run::*)();
  for (const Step step : {&Run::measure_alone, &Run::start_in_time, &Run::measure, &Run::finish})
    if (auto done = (this->*step)(); !done) return std::unexpected(done.error());
  return std::move(result_);
}

// Measures the latency of the service and how long a unit of work is, which cannot be measured
// while others run.
Result<> Run::measure_alone() {
  const DemoProgram& service = demo_programs()[kDemoService];
  progress_.step(fmt::format("the {} program alone, to compare with ...", service.tenant));
  const Time started = now();
  auto process = setup_.start_workload(service.tenant, service.program,
                                       demo_arguments_alone(service, kSamplesAlone));
  if (!process) return std::unexpected(process.error());
  if (auto ended = await_end(*process, kAlone); !ended) return ended;
  to_load_ = std::max(now() - started - kSamplesAlone * kDemoRequestPeriod, Nanos{});
  auto result = result_of(*process);
  if (!result) return std::unexpected(result.error());
  if (!result->ns_per_unit)
    return std::unexpected(process->failure(kRun, "no ns_per_unit in its result"));
  result_.alone = *result;
  schedule_.ns_per_unit = *result->ns_per_unit;
  return {};
}

// They are told when to begin before it is known how long they take to start beside each other, on
// a busy machine: where that was too early they start once more, with the time that it took.
Result<> Run::start_in_time() {
  progress_.step("five programs together; the measurement begins in a few seconds ...");
  Nanos ahead = 2 * to_load_ + kToBegin;
  for (int tries = 1;; ++tries) {
    const Time began = now();
    if (auto started = start_programs(ahead); !started) return started;
    if (auto there = await_gpu(); !there) return there;
    // One that comes late would end late, too.
    if (now() <= schedule_.start_at + kRest / 2) return wait_.until(schedule_.start_at);
    if (tries == kMostStarts)
      return make_error(std::errc::timed_out, kRun,
                        "they needed much longer to start than the time before; try again when the "
                        "machine is less busy");
    ahead = 2 * (now() - began) + kToBegin;
    progress_.step("they needed longer to start than one of them alone: once more ...");
    programs_.clear();
  }
}

Result<> Run::start_programs(Nanos ahead) {
  schedule_.start_at = now() + ahead;
  schedule_.warm_up = kWarmUp;
  schedule_.measured = options_.measured;
  schedule_.rest = kRest;
  for (const DemoProgram& program : demo_programs()) {
    auto process =
        setup_.start_workload(program.tenant, program.program, demo_arguments(program, schedule_));
    if (!process) return std::unexpected(process.error());
    programs_.push_back(std::move(*process));
  }
  return {};
}

// Waits until each has begun to work.
Result<> Run::await_gpu() {
  const auto is_on_gpu = [&](const PlaneSnapshot& snapshot, const Child& program) {
    const auto found = std::ranges::find_if(snapshot.processes, [&](const auto& process) {
      return process.record.pid == program.pid();
    });
    if (found == snapshot.processes.end()) return false;
    gpu_ = found->record.gpu;  // all use CUDA's first
    return true;
  };
  std::string missing;
  const auto all_there = wait_.until(
      [&]() -> Result<bool> {
        if (auto alive = check_all(); !alive) return std::unexpected(alive.error());
        const auto snapshot = setup_.look();
        if (!snapshot) return std::unexpected(snapshot.error());
        const auto absent = std::ranges::find_if_not(
            programs_, [&](const Child& program) { return is_on_gpu(*snapshot, program); });
        if (absent != programs_.end()) missing = absent->name();
        return absent == programs_.end();
      },
      kToGpu);
  if (!all_there) return std::unexpected(all_there.error());
  if (!*all_there)
    return make_error(std::errc::timed_out, kRun, "the agent does not see " + missing);
  return {};
}

Result<> Run::measure() {
  const Time begin = std::max(now(), schedule_.start_at) + schedule_.warm_up;
  const Time end = begin + schedule_.measured;
  auto previous = read();
  if (!previous) return std::unexpected(previous.error());
  std::optional<DemoReading> first;
  for (Time next = now(); next < end;) {
    const bool is_warm = first.has_value();
    next = std::min(next + seconds(1), is_warm ? end : begin);
    if (auto waited = wait_.until(next); !waited) return waited;
    if (auto alive = check_all(); !alive) return alive;
    auto reading = read();
    if (!reading) return std::unexpected(reading.error());
    const auto shares = compare_readings(*previous, *reading);
    if (!shares) return std::unexpected(shares.error());
    progress_.shares(next - begin, *shares);
    previous = *reading;
    if (!first && next >= begin) {
      first = *reading;
      auto trace = setup_.start_trace(std::min(schedule_.measured, kLongestTrace), options_.trace);
      if (!trace) return std::unexpected(trace.error());
      trace_.emplace(std::move(*trace));
    }
  }
  auto shares = compare_readings(*first, *previous);
  if (!shares) return std::unexpected(shares.error());
  result_.shares = std::move(*shares);
  result_.measured_for = Nanos(static_cast<int64_t>(previous->at_ns - first->at_ns));
  result_.trace = options_.trace;
  return {};
}

Result<> Run::finish() {
  const auto snapshot = setup_.look();
  if (!snapshot) return std::unexpected(snapshot.error());
  result_.is_simulated = snapshot->agent.is_simulated != 0;
  result_.driver = snapshot->agent.driver_version;
  for (const GpuRecord& gpu : snapshot->gpus)
    if (gpu.index == gpu_) result_.gpu_name = gpu.name;
  progress_.step("waiting for the programs to end ...");
  for (Child& program : programs_) {
    if (auto ended = await_end(program, kToEnd); !ended) return ended;
    auto result = result_of(program);
    if (!result) return std::unexpected(result.error());
    result_.workloads.push_back(*result);
  }
  return await_end(*trace_, kToEnd);
}

Result<> Run::await_end(Child& process, Nanos patience) {
  const auto ended = wait_.until(
      [&]() -> Result<bool> {
        if (auto alive = setup_.check(); !alive) return std::unexpected(alive.error());
        return process.has_ended();
      },
      patience);
  if (!ended) return std::unexpected(ended.error());
  if (!*ended) return std::unexpected(process.failure(kRun, process.name() + " does not end"));
  if (!process.has_succeeded()) return std::unexpected(process.failure(kRun));
  return {};
}

Result<WorkloadResult> Run::result_of(const Child& process) const {
  auto result = parse_workload_result(process.last_line());
  if (!result) return std::unexpected(process.failure(kRun, process.name() + " printed no result"));
  if (!result->is_verified)
    return std::unexpected(process.failure(kRun, process.name() + " computed something wrong"));
  return result;
}

Result<> Run::check_all() {
  if (auto alive = setup_.check(); !alive) return alive;
  for (Child& program : programs_)
    if (program.has_ended()) return std::unexpected(program.failure(kRun));
  return {};
}

Result<DemoReading> Run::read() const {
  const auto snapshot = setup_.look();
  if (!snapshot) return std::unexpected(snapshot.error());
  return read_demo(*snapshot, gpu_);
}

}  // namespace

Result<DemoResult> run_demo(DemoSetup& setup, Wait& wait, const DemoOptions& options,
                            const DemoProgress& progress) {
  return Run(setup, wait, options, progress).run();
}

}  // namespace gpushare
