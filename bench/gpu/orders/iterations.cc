// SPDX-License-Identifier: Apache-2.0
// iterations: a job for turns.py whose host side takes no time worth counting, so that what is
// measured of a hand-over is gpushare's and the driver's part. An iteration is a kernel that notes
// the GPU's clock, --launches kernels of work, and a kernel that notes the clock again; the host
// waits for its end, as a training loop does that reads its loss. The two notes are two kernels,
// because one kernel at both places would hide where an iteration begins.
// It prints {"ready":true} when it is warm, waits for a line, makes its iterations, and prints the
// stamps in their order, in ns of %globaltimer, and when it had ended, in ns of CLOCK_MONOTONIC.
// The simulated GPU does not know the notes; --clock 0 replaces them by kernels that it knows.
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "tests/workloads/common/busy_kernel.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

// NAME(to): *to = %globaltimer.
constexpr const char* kNote = R"((.param .u64 to)
{
  .reg .u64 %to, %now;
  ld.param.u64 %to, [to];
  cvta.to.global.u64 %to, %to;
  mov.u64 %now, %globaltimer;
  st.global.u64 [%to], %now;
  ret;
}
)";

std::string notes() {
  std::string text = ".version 7.0\n.target sm_70\n.address_size 64\n";
  for (const char* name : {"begin_note", "end_note"})
    text.append(".visible .entry ").append(name).append(kNote);
  return text;
}

constexpr uint64_t kWarm = 30;  // iterations that do not count, in which gpushare learns

struct Settings {
  uint64_t iterations = 2500, launches = 40, clock = 1, device = 0;
  double kernel_us = 250, ns_per_unit = 0;

  explicit Settings(Flags& flags) {
    flags.add("--iterations", &iterations, "how many are measured", "--launches", &launches,
              "kernels of work in one", "--kernel-us", &kernel_us,
              "length of such a kernel when alone, us", "--ns-per-unit", &ns_per_unit,
              "length of a unit of work, 0: measure it", "--clock", &clock,
              "0: without the GPU's clock, and no stamps");
    flags.limit("--iterations", 1, 1'000'000);
    flags.limit("--launches", 1);
    flags.parse(&device);
  }
};

// The two kernels at the ends of an iteration.
class Notes {
 public:
  Notes(const GpuSession& session, const Settings& s)
      : has_clock_(s.clock != 0), stamps_(has_clock_ ? 2 * s.iterations : 2) {
    log_ = session.new_zeroed(bytes());
    if (!has_clock_) {
      begin_ = session.kernel("gs_fill"), end_ = session.kernel("gs_fold");
      return;
    }
    check(cuModuleLoadData(&module_, notes().c_str()), "cuModuleLoadData");
    check(cuModuleGetFunction(&begin_, module_, "begin_note"), "cuModuleGetFunction");
    check(cuModuleGetFunction(&end_, module_, "end_note"), "cuModuleGetFunction");
  }
  ~Notes() {
    if (module_ != nullptr) cuModuleUnload(module_);
  }
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  void begin(CUstream stream, uint64_t index) const {
    if (has_clock_) return launch(begin_, {1, 1}, stream, at(2 * index));
    launch(begin_, {1, 1}, stream, log_, 1u, 1u);
  }
  void end(CUstream stream, uint64_t index) const {
    if (has_clock_) return launch(end_, {1, 1}, stream, at(2 * index + 1));
    launch(end_, {1, 1}, stream, log_, 1u, static_cast<CUdeviceptr>(log_ + sizeof(uint64_t)));
  }
  // All of them, when the GPU has done its work; none without the clock.
  std::span<const uint64_t> read() {
    if (!has_clock_) return {};
    check(cuMemcpyDtoH_v2(stamps_.data(), log_, bytes()), "cuMemcpyDtoH_v2");
    return stamps_;
  }

 private:
  size_t bytes() const { return stamps_.size() * sizeof(uint64_t); }
  CUdeviceptr at(uint64_t index) const { return log_ + index * sizeof(uint64_t); }

  const bool has_clock_;
  std::vector<uint64_t> stamps_;
  CUdeviceptr log_ = 0;
  CUmodule module_ = nullptr;
  CUfunction begin_ = nullptr, end_ = nullptr;
};

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  const CUstream stream = session.new_stream();
  Notes notes(session, s);
  BusyKernel work(session, 4);
  work.use_ns_per_unit(s.ns_per_unit, stream);
  uint32_t seed = 0;
  const auto iterate = [&](uint64_t index, uint32_t units) {
    notes.begin(stream, index);
    for (uint64_t i = 0; i < s.launches; ++i) work.submit(stream, ++seed, units);
    notes.end(stream, index);
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  };
  // The same kernels, but short ones: what gpushare learns are their names and order.
  const uint64_t warming = now_ns();
  for (uint64_t i = 0; i < kWarm; ++i) iterate(0, 1);
  JsonLine()
      .add("ready", true)
      .add("ns_per_unit", work.ns_per_unit())
      .add("warm_ns", now_ns() - warming)
      .print();
  if (std::getchar() == EOF) die("its standard input ended before the line that lets it begin");

  const uint32_t units = work.units_for_us(s.kernel_us);
  const uint64_t began = now_ns();
  for (uint64_t i = 0; i < s.iterations; ++i) iterate(i, units);
  const uint64_t ended = now_ns();
  JsonLine line("iterations", session.device_name());
  line.add("seconds", static_cast<double>(ended - began) / 1e9)
      .add("began_ns", began)
      .add("ended_ns", ended)
      .add("stamps", notes.read());
  return conclude(line, work.checksum(), work.checksum() == work.expected_checksum(),
                  kKernelsAtFault);
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("iterations", "iterations whose ends the GPU's own clock is noted at.")
