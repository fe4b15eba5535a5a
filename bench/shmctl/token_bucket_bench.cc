// SPDX-License-Identifier: Apache-2.0
// What does it cost to charge and refill one bucket, alone and when several processes (here
// threads) do it at once? The baseline is one atomic addition, which any shared counter costs at
// least.
#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <new>

#include "shmctl/plane/token_bucket.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

TokenBucket g_bucket;
alignas(64) std::atomic<uint64_t> g_counter;

// Every run gets a new bucket, so that time moves forward in each.
void enable(const benchmark::State&) {
  new (&g_bucket) TokenBucket{};
  g_bucket.configure(30ms, 100ms, 30ms, Time(1s));
}

void BM_AtomicAdd(benchmark::State& state) {
  for (auto _ : state) g_counter.fetch_add(1, std::memory_order_relaxed);
}
BENCHMARK(BM_AtomicAdd)->ThreadRange(1, 8);

void BM_Charge(benchmark::State& state) {
  for (auto _ : state) g_bucket.charge(1ns);
}
BENCHMARK(BM_Charge)->Setup(enable)->ThreadRange(1, 8);

// Each refill of a full bucket drops what overflows, which takes a compare-and-swap.
void BM_RefillFull(benchmark::State& state) {
  Time now(2s);
  for (auto _ : state) benchmark::DoNotOptimize(g_bucket.refill(now += 1us));
}
BENCHMARK(BM_RefillFull)->Setup(enable)->ThreadRange(1, 8);

void BM_RefillAndCharge(benchmark::State& state) {
  Time now(2s);
  for (auto _ : state) {
    benchmark::DoNotOptimize(g_bucket.refill(now += 1us));
    g_bucket.charge(300ns);
  }
}
BENCHMARK(BM_RefillAndCharge)->Setup(enable)->ThreadRange(1, 8);

void BM_Tokens(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(g_bucket.tokens());
}
BENCHMARK(BM_Tokens)->Setup(enable)->ThreadRange(1, 8);

}  // namespace
}  // namespace gpushare
