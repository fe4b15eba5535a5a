// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/scenarios/race.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gpushare::bench {
namespace {

// Arguments by which a program begins at `start`, is measured from `settle` seconds after it for
// `measured` seconds, and runs a little longer, so that no interval contains another program's end.
std::vector<std::string> timed(const Runner& runner, Time start, double settle, double measured) {
  std::vector<std::string> arguments = runner.arguments;
  const auto add = [&](const char* flag, std::string value) {
    arguments.insert(arguments.end(), {flag, std::move(value)});
  };
  add("--start-at", ns_text(start));
  add("--seconds", fmt::format("{}", settle + measured + 0.3));
  add("--measure-from", fmt::format("{}", settle));
  add("--measure-to", fmt::format("{}", settle + measured));
  return arguments;
}

struct Usage {
  Time time;
  std::map<pid_t, std::map<uint32_t, uint64_t>> ns;  // by process and GPU
};

Usage usage(Stage& stage) {
  const PlaneSnapshot plane = stage.plane();
  Usage found{Time{Nanos{static_cast<int64_t>(plane.agent.published_ns)}}, {}};
  for (const auto& [slot, process] : plane.processes)
    found.ns[process.pid][process.gpu] = process.gpu_time_ns;
  return found;
}

RaceResult result_of(Stage& stage, const std::vector<Runner>& runners,
                     const std::vector<Child*>& children, Time start, double settle) {
  RaceResult result;
  std::vector<pid_t> pids;
  for (const Child* child : children) pids.push_back(child->pid());
  if (stage.has_agent()) {
    const Time from = start + seconds(settle), to = from + seconds(stage.settings().seconds);
    stage.wait_until(from);
    Usage before = usage(stage);
    stage.wait_until(to);
    Usage after = usage(stage);
    const auto interval = static_cast<double>((after.time - before.time).count());
    for (const pid_t pid : pids) {
      double& all = result.log_shares.emplace_back(0);
      auto& each = result.log_by_gpu.emplace_back();
      for (const auto& [gpu, ns] : after.ns[pid])
        all += each[gpu] = static_cast<double>(ns - before.ns[pid][gpu]) / interval;
    }
  }
  for (size_t i = 0; i < children.size(); ++i) {
    result.lines.push_back(stage.finish(*children[i], start));
    const auto rate = number_in(result.lines.back(), runners[i].progress);
    if (!rate) give_up("read a program's progress", result.lines.back());
    result.rates.push_back(*rate);
  }
  stage.kill_programs();
  return result;
}

}  // namespace

std::vector<double> RaceResult::shares() const { return parts_of_sum(rates); }
std::vector<double> RaceResult::log_parts() const { return parts_of_sum(log_shares); }

Record RaceResult::record() const {
  Record record;
  record.add("rates", rates).add("total", total()).add("shares", shares());
  if (!log_shares.empty()) record.add("log_shares", log_shares);
  return record;
}

RaceResult race(Stage& stage, const std::vector<Runner>& runners) {
  const double settle = stage.settle_s();
  const Time start = stage.instant_for(runners.size());
  std::vector<Child*> children;
  for (const Runner& runner : runners)
    children.push_back(&stage.start(runner.workload,
                                    timed(runner, start, settle, stage.settings().seconds),
                                    stage.has_agent() ? runner.tenant : ""));
  return result_of(stage, runners, children, start, settle);
}

RaceResult race_under_agent(Stage& stage, const std::vector<Runner>& runners,
                            const std::string& tenants) {
  stage.start_agent(tenants);
  RaceResult result = race(stage, runners);
  stage.stop_agent();
  return result;
}

RaceResult race_before_agent(Stage& stage, const std::vector<Runner>& runners,
                             const std::string& tenants) {
  const double settle = stage.settle_s() + 1.5;  // the agent comes in this time
  const Time start = stage.instant_for(runners.size());
  std::vector<Child*> children;
  for (const Runner& runner : runners)
    children.push_back(
        &stage.start(runner.workload, timed(runner, start, settle, stage.settings().seconds)));
  stage.wait_until(start + std::chrono::milliseconds(200));
  stage.start_agent(tenants);
  for (size_t i = 0; i < runners.size(); ++i)
    stage.tell("attach", children[i]->pid(), runners[i].tenant);
  if (Stage::now() > start + seconds(settle - 0.5))
    give_up("attach programs", "the agent took too long to start");
  RaceResult result = result_of(stage, runners, children, start, settle);
  stage.stop_agent();
  return result;
}

double worst_error(const std::vector<double>& is, const std::vector<double>& should_be) {
  double worst = 0;
  for (size_t i = 0; i < is.size(); ++i) worst = std::max(worst, std::abs(is[i] - should_be[i]));
  return worst;
}

}  // namespace gpushare::bench
