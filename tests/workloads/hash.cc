// SPDX-License-Identifier: Apache-2.0
// hash: a fixed amount of work that goes through everything in order: streams that wait for each
// other by events, the legacy default stream, copies, fills and kernels that stream memory. Its
// checksum depends on --seed, --rounds, --streams and --words only, and is compared with the same
// work done on the host: one copy or kernel out of order changes it.
#include <algorithm>
#include <numeric>
#include <vector>

#include "intercept/cuda/kernel_math.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  uint64_t rounds = 50, streams = 4, words = 1 << 16, seed = 1, start_at = 0, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--rounds", &rounds, "how often every stream mixes in its neighbour's data",
              "--streams", &streams, "streams, each with a buffer", "--words", &words,
              "32-bit words in a buffer", "--seed", &seed, "of the data", "--start-at", &start_at,
              "CLOCK_MONOTONIC ns to begin at, 0: now");
    flags.limit("--streams", 2, 64);
    flags.limit("--words", 1, 1u << 28);
    flags.parse(&device);
  }
};

uint32_t shift_of_round(const Settings& s, uint64_t round) {
  return static_cast<uint32_t>((round * 977 + 1) % s.words);
}

// In every round each lane copies its neighbour's buffer, then mixes the copy into its own.
uint32_t expected_checksum(const Settings& s) {
  const auto words = static_cast<uint32_t>(s.words);
  kernels::Buffers lanes = kernels::filled(s.streams, words, s.seed);
  for (uint64_t round = 0; round < s.rounds; ++round) {
    const auto before = lanes;
    const uint32_t shift = shift_of_round(s, round);
    for (uint64_t lane = 0; lane < s.streams; ++lane) {
      const auto& neighbour = before[(lane + 1) % s.streams];
      for (uint32_t i = 0; i < words; ++i)
        lanes[lane][i] =
            kernels::mix_value(lanes[lane][i], neighbour[(uint64_t{i} + shift) % words]);
    }
  }
  return kernels::folded(lanes);
}

// The same on the GPU. Every other lane's stream is a blocking one; the last step, on the legacy
// default stream, waits for those by itself and for the others by their events.
class Mesh {
 public:
  Mesh(const GpuSession& session, const Settings& s)
      : settings_(s),
        words_(static_cast<uint32_t>(s.words)),
        bytes_(s.words * sizeof(uint32_t)),
        shape_{static_cast<unsigned>((s.words + 255) / 256), 256},
        fill_(session.kernel("gs_fill")),
        mix_(session.kernel("gs_mix")),
        fold_(session.kernel("gs_fold")),
        sum_(session.new_zeroed(sizeof(uint32_t))) {
    for (uint64_t i = 0; i < s.streams; ++i) {
      lanes_.push_back(
          {session.new_stream(is_blocking(i) ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING),
           session.new_event(CU_EVENT_DISABLE_TIMING), session.new_event(CU_EVENT_DISABLE_TIMING),
           session.new_zeroed(bytes_), session.new_zeroed(bytes_)});
    }
  }

  CUdeviceptr run() {
    for (uint64_t i = 0; i < lanes_.size(); ++i) {
      launch(fill_, shape_, lanes_[i].stream, lanes_[i].data, words_,
             static_cast<uint32_t>(settings_.seed + i));
      record(lanes_[i].mixed, lanes_[i]);
    }
    for (uint64_t round = 0; round < settings_.rounds; ++round)
      run_round(shift_of_round(settings_, round));
    for (uint64_t i = 0; i < lanes_.size(); ++i) {
      if (!is_blocking(i))
        check(cuStreamWaitEvent(nullptr, lanes_[i].mixed, 0), "cuStreamWaitEvent");
      launch(fold_, shape_, nullptr, lanes_[i].data, words_, sum_);
    }
    return sum_;
  }

 private:
  struct Lane {
    CUstream stream;
    CUevent copied;  // its copy of the neighbour's data is taken
    CUevent mixed;   // its own data are those after the round
    CUdeviceptr data, copy;
  };

  static bool is_blocking(uint64_t lane) { return lane % 2 == 0; }

  void run_round(uint32_t shift) {
    for (uint64_t i = 0; i < lanes_.size(); ++i) {
      const Lane& lane = lanes_[i];
      const Lane& neighbour = lanes_[(i + 1) % lanes_.size()];
      check(cuStreamWaitEvent(lane.stream, neighbour.mixed, 0), "cuStreamWaitEvent");
      check(cuMemcpyDtoDAsync_v2(lane.copy, neighbour.data, bytes_, lane.stream),
            "cuMemcpyDtoDAsync_v2");
      record(lane.copied, lane);
    }
    for (uint64_t i = 0; i < lanes_.size(); ++i) {
      const Lane& lane = lanes_[i];
      const Lane& reader = lanes_[(i + lanes_.size() - 1) % lanes_.size()];
      check(cuStreamWaitEvent(lane.stream, reader.copied, 0), "cuStreamWaitEvent");
      launch(mix_, shape_, lane.stream, lane.data, lane.copy, words_, shift);
      record(lane.mixed, lane);
    }
  }

  static void record(CUevent event, const Lane& lane) {
    check(cuEventRecord(event, lane.stream), "cuEventRecord");
  }

  const Settings& settings_;
  const uint32_t words_;
  const size_t bytes_;
  const LaunchShape shape_;
  const CUfunction fill_, mix_, fold_;
  const CUdeviceptr sum_;
  std::vector<Lane> lanes_;
};

int run(const Settings& s) {
  const uint32_t expected = expected_checksum(s);
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  Mesh mesh(session, s);
  sleep_until_ns(s.start_at);
  const uint64_t begin = now_ns();
  const CUdeviceptr sum = mesh.run();
  const uint32_t checksum = session.read_u32(sum);
  const uint64_t end = now_ns();

  JsonLine line("hash", session.device_name());
  line.add("rounds", s.rounds)
      .add("streams", s.streams)
      .add("words", s.words)
      .add("run_ms", static_cast<double>(end - begin) / 1e6);
  return conclude(line, checksum, checksum == expected, "something ran out of order or not at all");
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("hash", "a fixed mesh of kernels and copies on several streams, with a checksum.")
