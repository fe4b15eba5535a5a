// SPDX-License-Identifier: Apache-2.0
// Two GPUs: weights hold on each by itself, whether a program has work on one or on both at once.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/gpu/scenario.h"
#include "bench/gpu/scenarios/race.h"

namespace gpushare::bench {
namespace {

constexpr double kPoint = 0.01, kLeastTotal = 0.97;
constexpr unsigned kDevices[] = {0, 1};  // CUDA's numbers, which are not the driver's

struct Program {
  const char* tenant;
  double weight;  // the tenant's, the same in each of its rows
  std::vector<unsigned> devices;

  bool is_on(unsigned device) const { return std::ranges::count(devices, device) > 0; }
};
using Programs = std::vector<Program>;

std::vector<Runner> runners_of(Stage& stage, const Programs& programs) {
  std::vector<Runner> runners;
  for (const Program& program : programs) {
    Runner runner{.arguments = stage.spin_arguments(2000), .tenant = program.tenant};
    runner.arguments.push_back("--devices");
    runner.arguments.push_back(fmt::format("{}", fmt::join(program.devices, ",")));
    runners.push_back(std::move(runner));
  }
  return runners;
}

std::string tenants_of(const Programs& programs) {
  std::set<std::string> tables;
  for (const Program& program : programs)
    tables.insert(fmt::format("[tenant.{}]\nweight = {}\n", program.tenant, program.weight));
  return fmt::format("{}", fmt::join(tables, ""));
}

// Returns `value(i)` of each program i that is on the device.
template <class Value>
std::vector<double> on_device(const Programs& programs, unsigned device, Value value) {
  std::vector<double> found;
  for (size_t i = 0; i < programs.size(); ++i)
    if (programs[i].is_on(device)) found.push_back(value(i));
  return found;
}

std::vector<double> rates_on(const Programs& programs, unsigned device, const RaceResult& result) {
  return on_device(programs, device, [&](size_t i) {
    if (programs[i].devices.size() == 1) return result.rates[i];
    const auto rate = number_in(result.lines[i], fmt::format("device{}_units_per_ms", device));
    if (!rate) give_up("read a program's progress", result.lines[i]);
    return *rate;
  });
}

// Finds out which GPU a CUDA device is, by a program that runs on no other one.
uint32_t gpu_of(const Programs& programs, unsigned device, const RaceResult& result) {
  for (size_t i = 0; i < programs.size(); ++i)
    if (programs[i].devices == std::vector{device} && result.log_by_gpu[i].size() == 1)
      return result.log_by_gpu[i].begin()->first;
  give_up("tell the GPUs apart", "no program was on one alone");
}

std::vector<double> logged_on(const Programs& programs, unsigned device, const RaceResult& result) {
  const uint32_t gpu = gpu_of(programs, device, result);
  return on_device(programs, device, [&](size_t i) {
    const auto found = result.log_by_gpu[i].find(gpu);
    return found != result.log_by_gpu[i].end() ? found->second : 0;
  });
}

void judge_device(Report& report, const Programs& programs, unsigned device,
                  const RaceResult& native, const RaceResult& ours) {
  const auto target =
      parts_of_sum(on_device(programs, device, [&](size_t i) { return programs[i].weight; }));
  const std::vector<double> native_rates = rates_on(programs, device, native);
  const std::vector<double> rates = rates_on(programs, device, ours);
  const std::vector<double> logged = logged_on(programs, device, ours);
  report.numbers().add(
      fmt::format("device{}", device),
      Record().add("native_rates", native_rates).add("rates", rates).add("log_shares", logged));
  const double ratio = sum(rates) / sum(native_rates);
  const std::string where = fmt::format("device {}: ", device);
  report.must(where + "shares by progress", percents(target) + " +- 1",
              percents(parts_of_sum(native_rates)), percents(parts_of_sum(rates)),
              worst_error(parts_of_sum(rates), target) <= kPoint);
  report.must(where + "shares by its log", percents(target) + " +- 1", "-",
              percents(parts_of_sum(logged)), worst_error(parts_of_sum(logged), target) <= kPoint);
  report.must(where + "total", ">= 97 % of native",
              fmt::format("{:.1f} units/ms", sum(native_rates)), percent(ratio),
              ratio >= kLeastTotal);
}

void judge_log(Report& report, size_t gpu, const PlaneSnapshot& before,
               const PlaneSnapshot& after) {
  const uint64_t records = after.gpus[gpu].log_records - before.gpus[gpu].log_records;
  const uint64_t lost = after.gpus[gpu].log_lost - before.gpus[gpu].log_lost;
  report.numbers()
      .add(fmt::format("gpu{}_log_records", gpu), records)
      .add(fmt::format("gpu{}_log_lost", gpu), lost);
  report.must(fmt::format("GPU {}: its own log", gpu), "records, none lost", "-",
              fmt::format("{} records, {} lost", records, lost), records > 0 && lost == 0);
}

void run_programs(Stage& stage, Report& report, const Programs& programs) {
  const std::vector<Runner> runners = runners_of(stage, programs);
  const RaceResult native = race(stage, runners);
  stage.start_agent(tenants_of(programs));
  const PlaneSnapshot before = stage.plane();
  const RaceResult ours = race(stage, runners);
  const PlaneSnapshot after = stage.plane();
  stage.stop_agent();
  report.numbers().add("native", native.record()).add("ours", ours.record());
  for (const unsigned device : kDevices) judge_device(report, programs, device, native, ours);
  for (size_t gpu = 0; gpu < std::size(kDevices); ++gpu) judge_log(report, gpu, before, after);
}

// Tenant c is on the first GPU alone, so that the shares differ between the two.
void two_gpus(Stage& stage, Report& report) {
  run_programs(stage, report,
               {{"a", 30, {0}}, {"b", 70, {0}}, {"c", 100, {0}}, {"a", 30, {1}}, {"b", 70, {1}}});
}

void one_program_on_both(Stage& stage, Report& report) {
  run_programs(stage, report, {{"both", 100, {0, 1}}, {"a", 300, {0}}, {"b", 50, {1}}});
}

constexpr Scenario kScenarios[] = {
    {"two-gpus", "tenants on each GPU, two of them on both", two_gpus, 2},
    {"two-gpus-one-program", "one program on both GPUs, beside another one on each",
     one_program_on_both, 2},
};

}  // namespace

std::span<const Scenario> two_gpu_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
