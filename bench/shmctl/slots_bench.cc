// SPDX-License-Identifier: Apache-2.0
// What does it cost to write and to read one record through its slot? The writer is alone by
// contract, so more threads mean more readers. The baseline copies the record with memcpy.
#include <benchmark/benchmark.h>

#include <cstring>

#include "shmctl/plane/layout.h"
#include "shmctl/plane/slots.h"

namespace gpushare {
namespace {

Slot<ProcessRecord> g_slot;

void BM_Memcpy(benchmark::State& state) {
  ProcessRecord from, to;
  for (auto _ : state) {
    benchmark::DoNotOptimize(&from);
    std::memcpy(&to, &from, sizeof to);
    benchmark::DoNotOptimize(&to);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_Memcpy);

void BM_WriteRecord(benchmark::State& state) {
  ProcessRecord record{.pid = 1};
  for (auto _ : state) {
    write_record(g_slot, record);
    ++record.freezes;
  }
}
BENCHMARK(BM_WriteRecord);

void BM_ReadRecord(benchmark::State& state) {
  if (state.thread_index() == 0) write_record(g_slot, ProcessRecord{.pid = 1});
  for (auto _ : state) benchmark::DoNotOptimize(read_record(g_slot));
}
BENCHMARK(BM_ReadRecord)->ThreadRange(1, 8);

// Thread 0 writes without a pause while the others read; the time is that of both together.
void BM_ReadBesideAWriter(benchmark::State& state) {
  ProcessRecord record{.pid = 1};
  for (auto _ : state) {
    if (state.thread_index() == 0) {
      ++record.freezes;
      write_record(g_slot, record);
    } else {
      benchmark::DoNotOptimize(read_record(g_slot));
    }
  }
}
BENCHMARK(BM_ReadBesideAWriter)->ThreadRange(2, 8);

}  // namespace
}  // namespace gpushare
