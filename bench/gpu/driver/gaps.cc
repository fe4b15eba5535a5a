// SPDX-License-Identifier: Apache-2.0
// gaps: how long the GPU does nothing between two kernels of one stream, by its own clock. moves.py
// runs it natively, under the shim at rest, and while shim_drive moves the stream, to see what a
// move to another partition adds. Each kernel is one block that runs for --kernel-us and notes when
// it began and ended; enough of them are queued that the GPU never waits for the host. It needs a
// real GPU, because the simulated one does not know the kernel.
#include <algorithm>
#include <vector>

#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/quantiles.h"

namespace gpushare::workloads {
namespace {

// note(log, index, ns): log[2 * index] = begin, log[2 * index + 1] = end, in ns of %globaltimer.
constexpr const char* kNote = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry note(.param .u64 log, .param .u64 index, .param .u64 ns)
{
  .reg .u64 %log, %index, %ns, %begin, %now, %stayed;
  .reg .pred %is_early;
  mov.u64 %begin, %globaltimer;
  ld.param.u64 %log, [log];
  ld.param.u64 %index, [index];
  ld.param.u64 %ns, [ns];
  cvta.to.global.u64 %log, %log;
  shl.b64 %index, %index, 4;
  add.u64 %log, %log, %index;
STAY:
  mov.u64 %now, %globaltimer;
  sub.u64 %stayed, %now, %begin;
  setp.lt.u64 %is_early, %stayed, %ns;
  @%is_early bra STAY;
  st.global.u64 [%log], %begin;
  st.global.u64 [%log+8], %now;
  ret;
}
)";

// How many kernels are launched before the host waits. The gap at that wait does not count.
constexpr uint64_t kInQueue = 500;

struct Settings {
  uint64_t kernels = 100'000, kernel_us = 30, largest = 0, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--kernels", &kernels, "how many kernels are launched", "--kernel-us", &kernel_us,
              "how long each of them runs", "--largest", &largest,
              "how many of the largest gaps are printed, the largest first");
    flags.limit("--kernels", 2);
    flags.parse(&device);
  }
};

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_SPIN);
  CUmodule module = nullptr;
  CUfunction note = nullptr;
  check(cuModuleLoadData(&module, kNote), "cuModuleLoadData");
  check(cuModuleGetFunction(&note, module, "note"), "cuModuleGetFunction");
  const CUstream stream = session.new_stream();
  const CUdeviceptr log = session.new_zeroed(s.kernels * 2 * sizeof(uint64_t));
  const uint64_t begin = now_ns();
  for (uint64_t i = 0; i < s.kernels; ++i) {
    launch(note, {1, 1}, stream, log, i, s.kernel_us * 1000);
    if (i % kInQueue == kInQueue - 1) check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  const uint64_t end = now_ns();
  std::vector<uint64_t> times(s.kernels * 2);
  check(cuMemcpyDtoH_v2(times.data(), log, times.size() * sizeof(uint64_t)), "cuMemcpyDtoH_v2");

  std::vector<double> gaps;
  for (uint64_t i = 1; i < s.kernels; ++i)
    if (i % kInQueue != 0)
      gaps.push_back(static_cast<double>(times[2 * i]) - static_cast<double>(times[2 * i - 1]));
  std::vector<double> largest = gaps;
  std::ranges::sort(largest, std::greater());
  largest.resize(std::min<size_t>(largest.size(), s.largest));
  for (const double gap : largest) JsonLine().add("gap_ns", gap).print();
  const Quantiles all(gaps);
  JsonLine()
      .add("workload", "gaps")
      .add("device", session.device_name())
      .add("kernels", s.kernels)
      .add("kernel_us", s.kernel_us)
      .add("seconds", static_cast<double>(end - begin) / 1e9)
      .add("overlapping",
           static_cast<uint64_t>(std::ranges::count_if(gaps, [](double g) { return g < 0; })))
      .add("gap_p50_ns", all.at(0.50))
      .add("gap_p99_ns", all.at(0.99))
      .add("gap_p999_ns", all.at(0.999))
      .add("gap_max_ns", all.max())
      .print();
  check(cuModuleUnload(module), "cuModuleUnload");
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("gaps", "the time between two kernels of one stream, by the GPU's clock.")
