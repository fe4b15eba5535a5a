// SPDX-License-Identifier: Apache-2.0
// crowd: threads that launch into the same streams of every kind at the same time, and create and
// destroy streams of their own meanwhile. Each kernel adds a known number; none may be lost or run
// twice.
#include <thread>
#include <vector>

#include "intercept/cuda/kernel_math.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/random.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

constexpr LaunchShape kShape{4, 64};

struct Settings {
  uint64_t threads = 4, launches = 1000, units = 20, seed = 1, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--threads", &threads, "that launch", "--launches", &launches, "of each", "--units",
              &units, "of 16 rounds, the length of a kernel", "--seed", &seed,
              "of who takes which stream when");
    flags.limit("--threads", 1, 64);
    flags.limit("--units", 1, 1u << 30);
    flags.parse(&device);
  }
};

class Crowd {
 public:
  Crowd(const GpuSession& session, const Settings& s)
      : settings_(s),
        spin_(session.kernel("gs_spin")),
        sum_(session.new_zeroed(sizeof(uint32_t))),
        undo_(kernels::kRound.times(s.units * kernels::kRoundsPerUnit).inverse()) {
    check(cuCtxGetCurrent(&context_), "cuCtxGetCurrent");
    shared_ = {nullptr, GS_CU_STREAM_PER_THREAD, session.new_stream(CU_STREAM_DEFAULT),
               session.new_stream(CU_STREAM_NON_BLOCKING), session.new_stream(CU_STREAM_DEFAULT)};
  }

  void run() {
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < settings_.threads; ++i) threads.emplace_back([this, i] { work(i); });
    for (std::thread& thread : threads) thread.join();
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }

  CUdeviceptr sum() const { return sum_; }
  uint32_t expected() const {
    uint32_t expected = 0;
    for (uint64_t i = 0; i < settings_.threads * settings_.launches; ++i)
      expected += kernels::sum_of_starts(static_cast<uint32_t>(i), 0, kShape.total_threads());
    return expected;
  }

 private:
  void work(uint64_t thread) {
    check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    Random random(settings_.seed * 64 + thread);
    CUstream own = new_stream();
    for (uint64_t i = 0; i < settings_.launches; ++i) {
      const uint64_t choice = random.next() % (shared_.size() + 1);
      launch(spin_, kShape, choice < shared_.size() ? shared_[choice] : own, sum_,
             static_cast<uint32_t>(thread * settings_.launches + i),
             static_cast<uint32_t>(settings_.units), kernels::kRound.mul, kernels::kRound.add,
             undo_.mul, undo_.add);
      if (random.next() % 64 == 0) {
        check(cuStreamDestroy_v2(own), "cuStreamDestroy_v2");
        own = new_stream();
      }
      if (random.next() % 64 == 0)
        check(cuStreamSynchronize(shared_[random.next() % shared_.size()]), "cuStreamSynchronize");
    }
    check(cuStreamDestroy_v2(own), "cuStreamDestroy_v2");
  }

  static CUstream new_stream() {
    CUstream stream = nullptr;
    check(cuStreamCreate(&stream, CU_STREAM_DEFAULT), "cuStreamCreate");
    return stream;
  }

  const Settings& settings_;
  const CUfunction spin_;
  const CUdeviceptr sum_;
  const kernels::Affine undo_;
  CUcontext context_ = nullptr;
  std::vector<CUstream> shared_;
};

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  Crowd crowd(session, s);
  const uint64_t begin = now_ns();
  crowd.run();
  const uint32_t checksum = session.read_u32(crowd.sum());
  JsonLine line("crowd", session.device_name());
  line.add("threads", s.threads)
      .add("launches", s.launches)
      .add("run_ms", static_cast<double>(now_ns() - begin) / 1e6);
  return conclude(line, checksum, checksum == crowd.expected(), kKernelsAtFault);
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("crowd", "threads that share streams.")
