// SPDX-License-Identifier: Apache-2.0
// What does it cost to take a snapshot of the whole region (by the number of processes in it and of
// concurrent readers), to write a ledger entry around a freeze, and to open the region?
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "shmctl/plane/ledger.h"
#include "shmctl/plane/region.h"
#include "shmctl/plane/snapshot.h"

namespace gpushare {
namespace {

// The one region of the whole run, which is removed at its end.
class Plane {
 public:
  Plane() {
    if (!plane_) std::abort();
  }
  ~Plane() { (void)ControlPlane::remove(name_); }
  ControlPlane& get() { return *plane_; }
  const std::string& name() const { return name_; }

  void set_processes(uint32_t count) {
    write_record(get().region().tenants[0].record, TenantRecord{.name = "default"});
    for (uint32_t slot = 0; slot < kMaxProcesses; ++slot)
      write_record(get().region().processes[slot].record,
                   ProcessRecord{.pid = slot < count ? 1 : 0});
  }

 private:
  std::string name_ = "/gpushare-bench-" + std::to_string(::getpid());
  Result<ControlPlane> plane_ = ControlPlane::create(name_);
};

Plane& plane() {
  static Plane instance;
  return instance;
}

void BM_TakeSnapshot(benchmark::State& state) {
  if (state.thread_index() == 0) plane().set_processes(static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(take_snapshot(plane().get()));
}
BENCHMARK(BM_TakeSnapshot)->Arg(8)->Arg(256)->ThreadRange(1, 8)->Unit(benchmark::kMicrosecond);

void BM_LedgerFreezeAndThaw(benchmark::State& state) {
  Ledger ledger(plane().get().region());
  const std::array<uint32_t, 8> channels{1, 2, 3, 4, 5, 6, 7, 8};
  for (auto _ : state) ledger.end_thaw(*ledger.begin_freeze({.pid = 1}, 3, channels));
}
BENCHMARK(BM_LedgerFreezeAndThaw);

void BM_OpenReadOnly(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(ControlPlane::open_read_only(plane().name()));
}
BENCHMARK(BM_OpenReadOnly)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace gpushare
