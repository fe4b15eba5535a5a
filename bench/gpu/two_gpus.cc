// SPDX-License-Identifier: Apache-2.0
// Two GPUs: weights hold on each by itself. Tenants `a` and `b` have a program on each GPU, tenant
// `c` on the first alone, so that the shares differ between the two.
#include <fmt/format.h>

#include <map>

#include "bench/gpu/race.h"
#include "bench/gpu/scenario.h"

namespace gpushare::bench {
namespace {

constexpr double kPoint = 0.01, kMostLost = 0.97;

struct Place {
  const char* tenant;
  double weight;
  int device;
};
constexpr Place kPlaces[] = {{"a", 30, 0}, {"b", 70, 0}, {"c", 100, 0}, {"a", 30, 1}, {"b", 70, 1}};

std::vector<double> on_device(const std::vector<double>& values, int device) {
  std::vector<double> found;
  for (size_t i = 0; i < std::size(kPlaces); ++i)
    if (kPlaces[i].device == device) found.push_back(values[i]);
  return found;
}

std::vector<double> parts(std::vector<double> values) {
  const double total = sum(values);
  for (double& value : values) value /= total;
  return values;
}

void two_gpus(Stage& stage, Report& report) {
  std::vector<Runner> runners;
  std::vector<double> weights;
  for (const Place& place : kPlaces) {
    Runner runner{.arguments = stage.spin_arguments(2000), .tenant = place.tenant};
    runner.arguments.insert(runner.arguments.end(), {"--device", std::to_string(place.device)});
    runners.push_back(std::move(runner));
    weights.push_back(place.weight);
  }
  const RaceResult native = race(stage, runners);
  stage.start_agent("[tenant.a]\nweight = 30\n[tenant.b]\nweight = 70\n[tenant.c]\nweight = 100\n");
  const PlaneSnapshot before = stage.plane();
  const RaceResult ours = race(stage, runners);
  const PlaneSnapshot after = stage.plane();
  stage.stop_agent();
  report.numbers().add("native", native.record()).add("ours", ours.record());

  for (const int device : {0, 1}) {
    const std::vector<double> target = parts(on_device(weights, device));
    const std::vector<double> shares = parts(on_device(ours.rates, device));
    const std::vector<double> logged = parts(on_device(ours.log_shares, device));
    const double total = sum(on_device(native.rates, device));
    const double ratio = sum(on_device(ours.rates, device)) / total;
    const std::string where = fmt::format("device {}: ", device);
    report.must(where + "shares by progress", percents(target) + " +- 1",
                percents(parts(on_device(native.rates, device))), percents(shares),
                worst_error(shares, target) <= kPoint);
    report.must(where + "shares by its log", percents(target) + " +- 1", "-", percents(logged),
                worst_error(logged, target) <= kPoint);
    report.must(where + "total", ">= 97 % of native", fmt::format("{:.1f} units/ms", total),
                percent(ratio), ratio >= kMostLost);
  }
  for (size_t i = 0; i < 2; ++i) {
    const uint64_t records = after.gpus[i].log_records - before.gpus[i].log_records;
    const uint64_t lost = after.gpus[i].log_lost - before.gpus[i].log_lost;
    report.numbers()
        .add(fmt::format("gpu{}_log_records", i), records)
        .add(fmt::format("gpu{}_log_lost", i), lost);
    report.must(fmt::format("GPU {}: its own log", i), "records, none lost", "-",
                fmt::format("{} records, {} lost", records, lost), records > 0 && lost == 0);
  }
}

constexpr Scenario kScenarios[] = {
    {"two-gpus", "tenants on each GPU, two of them on both", two_gpus, 2},
};

}  // namespace

std::span<const Scenario> two_gpu_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
