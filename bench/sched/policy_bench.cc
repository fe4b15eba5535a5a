// SPDX-License-Identifier: Apache-2.0
// How long does one decision take, by the number of tenants (two processes each)? The agent makes
// one every tick and GPU, of `slo` one a second; of an order, by the number of jobs. Steady: the
// same load again and again, as between two changes.
#include <benchmark/benchmark.h>

#include "bench/sched/replay/machine.h"
#include "sched/policy/fair.h"
#include "tests/sched/support/slo_services.h"

namespace gpushare {
namespace {

struct Load {
  std::vector<TenantView> tenants;
  std::vector<ProcessView> processes;
};

// A tenth capped, a tenth idle-class; one process in ten without work.
Load make_load(uint32_t tenants) {
  Load load;
  for (uint32_t id = 0; id < tenants; ++id) {
    TenantView& tenant = load.tenants.emplace_back();
    tenant.id = id;
    tenant.weight = 1 + id * 37 % 1000;
    if (id % 10 == 3) tenant.priority = Priority::kIdle;
    if (id % 10 == 5) {
      tenant.cap = CapView{.fraction = 0.3,
                           .period = std::chrono::milliseconds(100),
                           .burst = std::chrono::milliseconds(30),
                           .tokens = std::chrono::milliseconds(20)};
    }
  }
  for (uint32_t id = 0; id < 2 * tenants; ++id) {
    ProcessView& process = load.processes.emplace_back();
    process.id = id;
    process.tenant = id / 2;
    process.wants_gpu = id % 10 != 7;
    process.used = Nanos(100'000);
    process.turns = 1;
  }
  return load;
}

void plan_fair(benchmark::State& state) {
  const Load load = make_load(static_cast<uint32_t>(state.range(0)));
  FairPolicy policy({});
  Time now{};
  for (auto _ : state) {
    now += std::chrono::milliseconds(2);
    benchmark::DoNotOptimize(policy.plan({now, load.tenants, load.processes}));
  }
}
BENCHMARK(plan_fair)->Arg(1)->Arg(4)->Arg(32)->Arg(250)->Arg(1000)->Unit(benchmark::kMicrosecond);

// Services of all kinds, measured with 10 % of noise. `load`: percent of one GPU, in all; a GPU of
// 15 groups takes some 70.
void decide_slo(benchmark::State& state) {
  const auto count = static_cast<int>(state.range(0));
  const double load = static_cast<double>(state.range(1)) / 100 / count;
  std::mt19937_64 random(1);
  const auto between = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  std::vector<WorldTenant> all;
  for (int i = 0; i < count; ++i) {
    const double full_speed = between(0.0005, 0.01);
    all.push_back({.shape = {LatencyShape::Kind::kAmdahl, between(0, 0.8)},
                   .full_speed = full_speed,
                   .slo = full_speed * between(1.5, 8),
                   .arrivals = between(0.2, 1.8) * load / full_speed});
  }
  Services services(all);
  services.set_noise(0.10);
  SloSizer policy(15);
  for (auto _ : state) services.round(policy);
}
BENCHMARK(decide_slo)
    ->ArgsProduct({{4, 14, 32, 64, 200}, {40, 140}})
    ->Unit(benchmark::kMicrosecond);

// Jobs of all kinds, half of them of unknown length, one in ten without work.
void decide_order(benchmark::State& state, std::string_view name) {
  LengthHistory history;
  for (int i = 0; i < 512; ++i) history.add("", std::chrono::milliseconds(10 + i * i * 7));
  const auto policy = replay::policy_named(name).value()(history);
  std::vector<JobView> jobs(static_cast<size_t>(state.range(0)));
  for (size_t i = 0; i < jobs.size(); ++i) {
    JobView& job = jobs[i];
    job.id = i + 1;
    job.name = "run-4711";
    job.weight = static_cast<uint32_t>(1 + i * 37 % 1000);
    job.arrived = Time(std::chrono::seconds(i));
    job.service = std::chrono::milliseconds(i * 7919 % 100'000);
    if (i % 2 == 0) job.left = std::chrono::milliseconds(i * 104'729 % 1'000'000);
    job.period = std::chrono::milliseconds(10);
    job.wants_gpu = i % 10 != 7;
  }
  Time now(std::chrono::hours(1));
  for (auto _ : state) {
    now += std::chrono::milliseconds(25);
    Plan plan = policy->plan({.now = now, .jobs = jobs});
    JobView& first = jobs[plan.jobs.front().job - 1];
    first.service += std::chrono::milliseconds(25);
    benchmark::DoNotOptimize(plan);
  }
}
BENCHMARK_CAPTURE(decide_order, fifo, "fifo")
    ->Arg(8)
    ->Arg(100)
    ->Arg(2000)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(decide_order, srtf, "srtf")
    ->Arg(8)
    ->Arg(100)
    ->Arg(2000)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(decide_order, turns, "turns")
    ->Arg(8)
    ->Arg(100)
    ->Arg(2000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace gpushare
