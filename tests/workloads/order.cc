// SPDX-License-Identifier: Apache-2.0
// order: a random walk of kernels and copies over streams of every kind, each step of which reads
// what the step before wrote. Where CUDA's rules order the two (in the same stream, or in the
// legacy default stream and a blocking one) nothing else orders them; otherwise an event does. A
// short and a long step alternate, so that a step that does not wait comes too early. The same
// steps on the host, one after the other, give the checksum.
#include <vector>

#include "intercept/cuda/kernel_math.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/random.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  uint64_t steps = 2000, words = 4096, delay_units = 200, seed = 1, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--steps", &steps, "kernels and copies", "--words", &words,
              "32-bit words in each of the two buffers", "--delay-units", &delay_units,
              "most units of 16 rounds before a step", "--seed", &seed, "of the walk");
    flags.limit("--words", 1, 1u << 28);
    flags.limit("--delay-units", 0, 1u << 30);
    flags.parse(&device);
  }
};

enum class Kind { kLegacy, kBlocking, kNonBlocking };

struct Lane {
  CUstream stream;
  Kind kind;
};

bool is_implied(const Lane& before, const Lane& after) {
  if (before.stream == after.stream) return true;
  return (before.kind == Kind::kLegacy && after.kind == Kind::kBlocking) ||
         (before.kind == Kind::kBlocking && after.kind == Kind::kLegacy);
}

// What a step does, to the one buffer from the other.
enum class Action { kMix, kCopy, kCopyWithoutStream };

struct Step {
  size_t lane;
  Action action;
  bool is_swapped;
  uint32_t shift, delay_units;
};

std::vector<Step> walk(const Settings& s, size_t lanes) {
  Random random(s.seed);
  std::vector<Step> steps;
  for (uint64_t i = 0; i < s.steps; ++i) {
    Step step{.lane = (random.next() % lanes),
              .action = Action::kMix,
              .is_swapped = (random.next() % 2) != 0,
              .shift = static_cast<uint32_t>((random.next() % s.words)),
              .delay_units = static_cast<uint32_t>((random.next() % 2) * s.delay_units)};
    if ((random.next() % 8) == 0) step.action = Action::kCopy;
    // The legacy stream is the first lane: what names no stream runs there.
    if (step.action == Action::kCopy && step.lane == 0) step.action = Action::kCopyWithoutStream;
    steps.push_back(step);
  }
  return steps;
}

uint32_t expected_checksum(const Settings& s, const std::vector<Step>& steps) {
  const auto words = static_cast<uint32_t>(s.words);
  kernels::Buffers buffers = kernels::filled(2, words, s.seed);
  for (const Step& step : steps) {
    auto& to = buffers[step.is_swapped ? 1 : 0];
    const auto& from = buffers[step.is_swapped ? 0 : 1];
    for (uint32_t i = 0; i < words; ++i)
      // A copy alone would make both buffers the same for ever: a kernel follows it.
      to[i] = kernels::mix_value(step.action == Action::kMix ? to[i] : from[i],
                                 from[(uint64_t{i} + step.shift) % words]);
  }
  return kernels::folded(buffers);
}

class Walker {
 public:
  Walker(const GpuSession& session, const Settings& s)
      : words_(static_cast<uint32_t>(s.words)),
        shape_{static_cast<unsigned>((s.words + 255) / 256), 256},
        mix_(session.kernel("gs_mix")),
        spin_(session.kernel("gs_spin")),
        event_(session.new_event(CU_EVENT_DISABLE_TIMING)),
        sink_(session.new_zeroed(sizeof(uint32_t))) {
    lanes_ = {{nullptr, Kind::kLegacy}, {GS_CU_STREAM_PER_THREAD, Kind::kBlocking}};
    for (int i = 0; i < 2; ++i) {
      lanes_.push_back({session.new_stream(CU_STREAM_DEFAULT), Kind::kBlocking});
      lanes_.push_back({session.new_stream(CU_STREAM_NON_BLOCKING), Kind::kNonBlocking});
    }
    const CUfunction fill = session.kernel("gs_fill");
    for (uint32_t b = 0; b < 2; ++b) {
      buffers_[b] = session.new_zeroed(s.words * sizeof(uint32_t));
      launch(fill, shape_, nullptr, buffers_[b], words_, static_cast<uint32_t>(s.seed) + b);
    }
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }

  size_t lane_count() const { return lanes_.size(); }

  void take(const Step& step) {
    const Lane& lane = lanes_[step.lane];
    if (last_ != nullptr && !is_implied(*last_, lane)) {
      check(cuEventRecord(event_, last_->stream), "cuEventRecord");
      check(cuStreamWaitEvent(lane.stream, event_, 0), "cuStreamWaitEvent");
    }
    last_ = &lane;
    if (step.delay_units != 0)
      launch(spin_, {1, 32}, lane.stream, sink_, 1u, step.delay_units, kernels::kRound.mul,
             kernels::kRound.add, 1u, 0u);
    const CUdeviceptr to = buffers_[step.is_swapped ? 1 : 0];
    const CUdeviceptr from = buffers_[step.is_swapped ? 0 : 1];
    const size_t bytes = size_t{words_} * sizeof(uint32_t);
    if (step.action == Action::kCopy)
      check(cuMemcpyDtoDAsync_v2(to, from, bytes, lane.stream), "cuMemcpyDtoDAsync_v2");
    if (step.action == Action::kCopyWithoutStream)
      check(cuMemcpyDtoD_v2(to, from, bytes), "cuMemcpyDtoD_v2");
    launch(mix_, shape_, lane.stream, to, from, words_, step.shift);
  }

  uint32_t checksum(const GpuSession& session) {
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    const CUdeviceptr sum = session.new_zeroed(sizeof(uint32_t));
    for (const CUdeviceptr buffer : buffers_)
      launch(session.kernel("gs_fold"), shape_, nullptr, buffer, words_, sum);
    return session.read_u32(sum);
  }

 private:
  const uint32_t words_;
  const LaunchShape shape_;
  const CUfunction mix_, spin_;
  const CUevent event_;
  const CUdeviceptr sink_;
  CUdeviceptr buffers_[2] = {};
  std::vector<Lane> lanes_;
  const Lane* last_ = nullptr;
};

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  Walker walker(session, s);
  const std::vector<Step> steps = walk(s, walker.lane_count());
  const uint64_t begin = now_ns();
  for (const Step& step : steps) walker.take(step);
  const uint32_t checksum = walker.checksum(session);
  JsonLine line("order", session.device_name());
  line.add("steps", s.steps)
      .add("words", s.words)
      .add("run_ms", static_cast<double>(now_ns() - begin) / 1e6);
  return conclude(line, checksum, checksum == expected_checksum(s, steps),
                  "a step ran out of order");
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("order", "steps that must run in order, over streams of every kind.")
