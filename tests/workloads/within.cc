// SPDX-License-Identifier: Apache-2.0
// within: fills and copies within the GPU, without a kernel of its own. Each round fills a buffer
// with its number, copies it to a second one, and copies the last word of that into a log of all
// rounds. The log and the second buffer are right only if nothing ran out of order. With --host 1
// it copies between the host and the GPU instead, in both directions.
#include <algorithm>
#include <vector>

#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  uint64_t bytes = 64 << 20, rounds = 100, pause_us = 0, host = 0, device = 0;
  std::string stream = "non-blocking";

  explicit Settings(Flags& flags) {
    flags.add("--bytes", &bytes, "of each of the two buffers, a multiple of 4", "--rounds", &rounds,
              "of a fill and two copies", "--pause-us", &pause_us, "before a round", "--stream",
              &stream,
              "legacy, per-thread, blocking, non-blocking, or none: calls that name no stream",
              "--host", &host, "1: copy between host and GPU instead");
    flags.limit("--rounds", 1);
    flags.parse(&device);
    if (bytes == 0 || bytes % 4 != 0) flags.fail("--bytes must be a multiple of 4");
  }
};

CUstream stream_of(const Settings& s, const GpuSession& session) {
  if (s.stream == "legacy" || s.stream == "none") return nullptr;
  if (s.stream == "per-thread") return GS_CU_STREAM_PER_THREAD;
  if (s.stream == "blocking") return session.new_stream(CU_STREAM_DEFAULT);
  if (s.stream == "non-blocking") return session.new_stream(CU_STREAM_NON_BLOCKING);
  die("--stream is legacy, per-thread, blocking, non-blocking or none");
}

class Rounds {
 public:
  Rounds(const GpuSession& session, const Settings& s)
      : settings_(s),
        names_stream_(s.stream != "none"),
        stream_(stream_of(s, session)),
        first_(session.new_zeroed(s.bytes)),
        second_(session.new_zeroed(s.bytes)),
        log_(session.new_zeroed(s.rounds * sizeof(uint32_t))),
        words_(s.bytes / sizeof(uint32_t)) {}

  CUstream stream() const { return stream_; }

  void on_gpu(uint32_t round) const {
    const CUdeviceptr last = second_ + settings_.bytes - sizeof(uint32_t);
    const CUdeviceptr line = log_ + uint64_t{round} * sizeof(uint32_t);
    if (names_stream_) {
      check(cuMemsetD32Async(first_, round, words_, stream_), "cuMemsetD32Async");
      check(cuMemcpyDtoDAsync_v2(second_, first_, settings_.bytes, stream_),
            "cuMemcpyDtoDAsync_v2");
      check(cuMemcpyDtoDAsync_v2(line, last, sizeof(uint32_t), stream_), "cuMemcpyDtoDAsync_v2");
    } else {
      check(cuMemsetD32_v2(first_, round, words_), "cuMemsetD32_v2");
      check(cuMemcpyDtoD_v2(second_, first_, settings_.bytes), "cuMemcpyDtoD_v2");
      check(cuMemcpyDtoD_v2(line, last, sizeof(uint32_t)), "cuMemcpyDtoD_v2");
    }
  }

  void to_gpu_and_back(uint32_t round, std::vector<uint32_t>& out, std::vector<uint32_t>& back) {
    out.assign(words_, round);
    back.assign(words_, ~round);
    if (names_stream_) {
      check(cuMemcpyHtoDAsync_v2(first_, out.data(), settings_.bytes, stream_),
            "cuMemcpyHtoDAsync_v2");
      check(cuMemcpyDtoHAsync_v2(back.data(), first_, settings_.bytes, stream_),
            "cuMemcpyDtoHAsync_v2");
      check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    } else {
      check(cuMemcpyHtoD_v2(first_, out.data(), settings_.bytes), "cuMemcpyHtoD_v2");
      check(cuMemcpyDtoH_v2(back.data(), first_, settings_.bytes), "cuMemcpyDtoH_v2");
    }
    if (back != out) die("wrong result: the data changed");
  }

  // What the last round wrote, and the log.
  bool is_right() const {
    std::vector<uint32_t> words(words_), log(settings_.rounds);
    check(cuMemcpyDtoH_v2(words.data(), second_, settings_.bytes), "cuMemcpyDtoH_v2");
    check(cuMemcpyDtoH_v2(log.data(), log_, log.size() * sizeof(uint32_t)), "cuMemcpyDtoH_v2");
    for (uint32_t round = 0; round < log.size(); ++round)
      if (log[round] != round) return false;
    return std::ranges::all_of(words, [&](uint32_t word) { return word == log.size() - 1; });
  }

 private:
  const Settings& settings_;
  const bool names_stream_;
  const CUstream stream_;
  const CUdeviceptr first_, second_, log_;
  const size_t words_;
};

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  Rounds rounds(session, s);
  const CUevent begin = session.new_event(CU_EVENT_DEFAULT);
  const CUevent end = session.new_event(CU_EVENT_DEFAULT);
  std::vector<uint32_t> out, back;
  check(cuEventRecord(begin, rounds.stream()), "cuEventRecord");
  for (uint32_t round = 0; round < s.rounds; ++round) {
    if (s.pause_us != 0) sleep_until_ns(now_ns() + s.pause_us * 1000);
    if (s.host != 0) {
      rounds.to_gpu_and_back(round, out, back);
    } else {
      rounds.on_gpu(round);
    }
  }
  check(cuEventRecord(end, rounds.stream()), "cuEventRecord");
  check(cuEventSynchronize(end), "cuEventSynchronize");
  float ms = 0;
  check(cuEventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
  check(cuStreamSynchronize(rounds.stream()), "cuStreamSynchronize");
  JsonLine line("within", session.device_name());
  line.add("bytes", s.bytes)
      .add("rounds", s.rounds)
      .add("stream", s.stream)
      .add("ms_per_round", static_cast<double>(ms) / static_cast<double>(s.rounds));
  return conclude(line, static_cast<uint32_t>(s.rounds), s.host != 0 || rounds.is_right(),
                  "a copy or a fill ran out of order");
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("within", "fills and copies within the GPU.")
