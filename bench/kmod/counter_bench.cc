// SPDX-License-Identifier: Apache-2.0
// What do the numbers that a tenant shares with all below it add to a call that makes memory and
// to the one that frees it, alone and when several threads do it at once? The module's own header
// runs here in user space: the atomic numbers of the tenant and of the root above it, and nothing
// of the call around them. The argument says for how many us a thread is elsewhere between two
// such calls, as it is in the driver: 0 is the worst that can be. The baseline takes the time
// twice, with nothing between. At most as many threads meet as there are processors.
// clang-format off
#include "tests/kmod/members/atomic64.h"
#include "kmod/members/counter.h"
// clang-format on

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

namespace gpushare {
namespace {

constexpr uint32_t kGpu = 0;
constexpr uint64_t kBytes = 64 << 10;
constexpr int kMostThreads = 8;

struct Tenants {
  Tenants() {
    gs_counter_init(&root, nullptr);
    for (gs_counter& tenant : tenants) gs_counter_init(&tenant, &root);
  }
  gs_counter root{}, tenants[kMostThreads]{};
};
Tenants g_tenants;

using Clock = std::chrono::steady_clock;

// Times each call of `step`, is elsewhere for a while after it, and reports the mean over the
// threads of their percentiles.
template <class Step>
void time_each(benchmark::State& state, Step step) {
  const std::chrono::microseconds elsewhere(state.range(0));
  std::vector<double> took_ns;
  took_ns.reserve(1 << 22);
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    step();
    const Clock::time_point end = Clock::now();
    took_ns.push_back(std::chrono::duration<double, std::nano>(end - begin).count());
    while (Clock::now() - end < elsewhere) {
    }
  }
  const auto at = [&](double part) {
    const auto place =
        took_ns.begin() + static_cast<ptrdiff_t>(part * static_cast<double>(took_ns.size() - 1));
    std::nth_element(took_ns.begin(), place, took_ns.end());
    return benchmark::Counter(*place, benchmark::Counter::kAvgThreads);
  };
  state.counters["p50_ns"] = at(0.5);
  state.counters["p99_ns"] = at(0.99);
}

void charge(gs_counter& tenant) {
  if (gs_counter_try_memory(&tenant, kGpu, kBytes) != nullptr) std::abort();
  gs_counter_hold_memory(&tenant, nullptr, kBytes);
}

void give_back(gs_counter& tenant) {
  gs_counter_hold_memory(&tenant, nullptr, 0 - kBytes);
  gs_counter_add_memory(&tenant, nullptr, kGpu, 0 - kBytes);
}

void rows(benchmark::internal::Benchmark* bench) {
  bench->UseRealTime()
      ->ArgName("us_elsewhere")
      ->Arg(0)
      ->Arg(5)
      ->Threads(1)
      ->Threads(2)
      ->Threads(kMostThreads);
}

void BM_Nothing(benchmark::State& state) {
  time_each(state, [] { benchmark::ClobberMemory(); });
}
BENCHMARK(BM_Nothing)->Apply(rows);

void BM_ChargeAndGiveBackInOneTenant(benchmark::State& state) {
  time_each(state, [] { charge(g_tenants.tenants[0]), give_back(g_tenants.tenants[0]); });
}
BENCHMARK(BM_ChargeAndGiveBackInOneTenant)->Apply(rows);

// These share the root alone.
void BM_ChargeAndGiveBackInATenantEach(benchmark::State& state) {
  gs_counter& tenant = g_tenants.tenants[state.thread_index()];
  time_each(state, [&] { charge(tenant), give_back(tenant); });
}
BENCHMARK(BM_ChargeAndGiveBackInATenantEach)->Apply(rows);

}  // namespace
}  // namespace gpushare
