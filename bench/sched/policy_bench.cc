// SPDX-License-Identifier: Apache-2.0
// How long does one decision take, by the number of tenants (two processes each)? The agent makes
// one every tick and GPU. Steady: the same load again and again, as between two changes.
#include <benchmark/benchmark.h>

#include "sched/policy_fair.h"

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

}  // namespace
}  // namespace gpushare
