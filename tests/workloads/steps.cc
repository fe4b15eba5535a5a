// SPDX-License-Identifier: Apache-2.0
// steps: makes iterations as a training loop, a decoder or a server does. It knows where each
// begins, asks gpushare (gpushare.h) at the end of each what it has seen, and counts: a boundary is
// right when exactly one was seen in the iteration, at its first launch. With --announce it
// announces the beginnings itself. Without libgpushare.so it is an ordinary workload.
#include <cstdio>
#include <string>
#include <vector>

#include "intercept/api/gpushare.h"
#include "tests/workloads/common/busy_kernel.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/quantiles.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

// The first iterations do not count, because gpushare has to learn; with phases, a few prompts.
constexpr uint64_t kLearning = 16, kLearningPhases = 500;

struct Settings {
  std::string mode = "train", times;
  uint64_t iterations = 300, launches = 40, units = 20, pause_us = 2000, tokens = 32, announce = 0,
           slo_us = 0, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--mode", &mode, "train, decode or serve", "--iterations", &iterations,
              "training steps, decoding steps or requests", "--launches", &launches,
              "kernels of one", "--units", &units, "of work in each kernel, of 16 rounds",
              "--pause-us", &pause_us, "serve: from one request to the next", "--tokens", &tokens,
              "decode: steps after each prompt", "--announce", &announce,
              "1: says where they begin and end", "--slo-us", &slo_us, "sets this SLO; 0: none",
              "--times", &times, "file for the truth: begin and first launch of each, ns");
    flags.limit("--iterations", 1, 10'000'000);
    flags.limit("--launches", 4, 100'000);
    flags.limit("--units", 0, 1u << 30);
    flags.parse(&device);
    if (mode != "train" && mode != "decode" && mode != "serve")
      flags.fail("--mode must be train, decode or serve");
  }
};

// Compares what gpushare has seen with what happened.
class Judge {
 public:
  void begin() { began_ns_ = now_ns(); }
  void first_launched() { launched_ns_ = now_ns(); }
  void end(gpushare_phase phase) {
    times_.push_back({began_ns_, launched_ns_});
    gpushare_iterations seen{};
    if (gpushare_read_iterations(&seen) != GPUSHARE_OK) return;
    is_attached_ = true;
    const uint64_t begun = seen.begun - begun_before_;
    begun_before_ = seen.begun;
    if (times_.size() <= kLearning) return;
    const bool is_right = begun == 1 && seen.began_ns >= began_ns_ && seen.began_ns <= launched_ns_;
    right_ += is_right ? 1 : 0;
    missed_ += is_right ? 0 : 1;
    invented_ += is_right ? 0 : begun;
    if (phase == GPUSHARE_UNKNOWN || times_.size() <= kLearningPhases) return;
    ++phases_;
    known_phases_ += seen.phase != GPUSHARE_UNKNOWN ? 1 : 0;
    wrong_phases_ += seen.phase != GPUSHARE_UNKNOWN && seen.phase != phase ? 1 : 0;
  }

  void add_to(JsonLine& line) const {
    const uint64_t all = right_ + missed_ + invented_;
    gpushare_iterations seen{};
    gpushare_read_iterations(&seen);
    line.add("attached", is_attached_)
        .add("seen", seen.begun)
        .add("source", static_cast<uint64_t>(seen.source))
        .add("confidence", static_cast<uint64_t>(seen.confidence))
        .add("mean_us", static_cast<double>(seen.period_ns) / 1000)
        .add("right", right_)
        .add("missed", missed_)
        .add("invented", invented_)
        .add("accuracy", all == 0 ? 0.0 : static_cast<double>(right_) / static_cast<double>(all))
        .add("phases", phases_)
        .add("known_phases", known_phases_)
        .add("wrong_phases", wrong_phases_);
    std::vector<double> periods_us;
    for (size_t i = 1; i < times_.size(); ++i)
      periods_us.push_back(static_cast<double>(times_[i].began_ns - times_[i - 1].began_ns) / 1000);
    if (periods_us.empty()) return;
    const Quantiles periods(periods_us);
    line.add("true_mean_us", periods.mean()).add("true_p99_us", periods.at(0.99));
  }

  void write(const std::string& path) const {
    FILE* file = std::fopen(path.c_str(), "w");
    if (file == nullptr) die("cannot write " + path);
    for (const Times& each : times_)
      fmt::print(file, "{} {}\n", each.began_ns, each.first_launched_ns);
    std::fclose(file);
  }

 private:
  struct Times {
    uint64_t began_ns, first_launched_ns;
  };

  uint64_t began_ns_ = 0, launched_ns_ = 0, begun_before_ = 0;
  bool is_attached_ = false;
  uint64_t right_ = 0, missed_ = 0, invented_ = 0;
  uint64_t phases_ = 0, known_phases_ = 0, wrong_phases_ = 0;
  std::vector<Times> times_;
};

class Model {
 public:
  Model(const GpuSession& session, const Settings& settings)
      : settings_(settings),
        wide_(session, 4),
        narrow_(session, 1),
        stream_(session.new_stream()),
        first_(session.kernel("gs_fill")),
        layer_(session.kernel("gs_mix")),
        last_(session.kernel("gs_fold")),
        words_(session.new_zeroed(kWords * 4)),
        state_(session.new_zeroed(kWords * 4)),
        sum_(session.new_zeroed(4)) {}

  void take(size_t bytes) {
    check(cuMemcpyHtoDAsync_v2(state_, input_.data(), bytes, stream_), "cuMemcpyHtoDAsync");
  }
  void run(bool is_wide, Judge& judge) {
    const LaunchShape shape{is_wide ? kWords / 256 : 1, 256};
    const unsigned count = shape.blocks * shape.threads;
    launch(first_, shape, stream_, words_, count, static_cast<unsigned>(++seed_));
    judge.first_launched();
    for (uint64_t i = 2; i < settings_.launches; i += 2) {
      (is_wide ? wide_ : narrow_)
          .submit(stream_, static_cast<uint32_t>(++seed_), static_cast<uint32_t>(settings_.units));
      launch(layer_, shape, stream_, words_, state_, count, 1u);
    }
    launch(last_, shape, stream_, words_, count, sum_);
  }
  void give() {
    check(cuMemcpyDtoHAsync_v2(&result_, sum_, 4, stream_), "cuMemcpyDtoHAsync");
    wait();
  }
  void wait() { check(cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

  uint32_t checksum() const { return wide_.checksum() + narrow_.checksum(); }
  uint32_t expected_checksum() const {
    return wide_.expected_checksum() + narrow_.expected_checksum();
  }

 private:
  static constexpr unsigned kWords = 1 << 14;

  const Settings& settings_;
  BusyKernel wide_, narrow_;
  const CUstream stream_;
  const CUfunction first_, layer_, last_;
  const CUdeviceptr words_, state_, sum_;
  std::vector<uint32_t> input_ = std::vector<uint32_t>(kWords, 1);
  uint32_t result_ = 0;
  uint64_t seed_ = 0;
};

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  Model model(session, s);
  Judge judge;
  if (s.slo_us != 0) gpushare_set_slo(static_cast<uint32_t>(s.slo_us));
  const uint64_t start = now_ns();
  for (uint64_t i = 0; i < s.iterations; ++i) {
    const bool is_prompt = s.mode == "decode" && i % (s.tokens + 1) == 0;
    const gpushare_phase phase = s.mode != "decode" ? GPUSHARE_UNKNOWN
                                 : is_prompt        ? GPUSHARE_PREFILL
                                                    : GPUSHARE_DECODE;
    gpushare_iteration iteration = GPUSHARE_ITERATION;
    if (s.mode == "serve") {
      sleep_until_ns(start + i * s.pause_us * 1000);
      if (s.announce != 0) gpushare_arrive(&iteration);
    }
    judge.begin();
    if (s.announce != 0) gpushare_begin(&iteration, phase);
    if (s.mode != "decode" || is_prompt) model.take(is_prompt ? 4096 : 16384);
    model.run(s.mode != "decode" || is_prompt, judge);
    // A training loop reads its loss now and then, and else runs ahead of the GPU.
    if (s.mode != "train" || i % 10 == 9) model.give();
    if (s.announce != 0) gpushare_end(&iteration);
    judge.end(phase);
  }
  model.wait();
  const double seconds = static_cast<double>(now_ns() - start) / 1e9;
  if (!s.times.empty()) judge.write(s.times);

  JsonLine line("steps", session.device_name());
  line.add("mode", s.mode).add("iterations", s.iterations).add("seconds", seconds);
  judge.add_to(line);
  return conclude(line, model.checksum(), model.checksum() == model.expected_checksum(),
                  kKernelsAtFault);
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("steps", "iterations, and what gpushare made of them.")
