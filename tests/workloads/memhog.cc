// SPDX-License-Identifier: Apache-2.0
// memhog: takes a given amount of GPU memory in pieces, writes a word on each 2 MiB page, holds it,
// and checks that the words are still there. Running out of memory ends it with
// CUDA_ERROR_OUT_OF_MEMORY and status 1, after a line that says how far it came.
#include <algorithm>
#include <vector>

#include "intercept/cuda/kernel_math.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

constexpr uint64_t kPageBytes = 2 << 20;

struct Settings {
  uint64_t bytes = 1 << 30, chunk = 64 << 20, hold_ms = 1000, seed = 1, start_at = 0, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--bytes", &bytes, "how much, in bytes", "--chunk", &chunk, "size of a piece, bytes",
              "--hold-ms", &hold_ms, "how long to hold all of it", "--seed", &seed,
              "of what is written", "--start-at", &start_at,
              "CLOCK_MONOTONIC ns to begin at, 0: now");
    flags.limit("--chunk", 4);
    flags.parse(&device);
  }
};

struct Piece {
  CUdeviceptr at = 0;
  uint32_t pages = 0;
  uint32_t value = 0;  // on the first page; one more on each further page
};

class Hoard {
 public:
  explicit Hoard(const GpuSession& session)
      : session_(session),
        stamp_(session.kernel("gs_stamp")),
        sum_kernel_(session.kernel("gs_stamps")),
        sum_(session.new_zeroed(sizeof(uint32_t))) {}

  CUresult add(uint64_t bytes, uint32_t value) {
    Piece piece{0, static_cast<uint32_t>((bytes + kPageBytes - 1) / kPageBytes), value};
    if (const CUresult result = cuMemAlloc_v2(&piece.at, bytes); result != CUDA_SUCCESS)
      return result;
    launch(stamp_, shape(piece), nullptr, piece.at, kPageBytes, piece.pages, value);
    pieces_.push_back(piece);
    held_ += bytes;
    return CUDA_SUCCESS;
  }
  uint64_t held() const { return held_; }

  uint32_t checksum() const {
    for (const Piece& piece : pieces_)
      launch(sum_kernel_, shape(piece), nullptr, piece.at, kPageBytes, piece.pages, sum_);
    return session_.read_u32(sum_);
  }
  uint32_t expected_checksum() const {
    uint32_t sum = 0;
    for (const Piece& piece : pieces_)
      for (uint32_t i = 0; i < piece.pages; ++i) sum += kernels::fold_value(piece.value + i, i);
    return sum;
  }

 private:
  static LaunchShape shape(const Piece& piece) { return {(piece.pages + 127) / 128, 128}; }

  const GpuSession& session_;
  const CUfunction stamp_, sum_kernel_;
  const CUdeviceptr sum_;
  std::vector<Piece> pieces_;
  uint64_t held_ = 0;
};

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  Hoard hoard(session);
  sleep_until_ns(s.start_at);
  const uint64_t begin = now_ns();
  CUresult result = CUDA_SUCCESS;
  while (hoard.held() < s.bytes && result == CUDA_SUCCESS) {
    result = hoard.add(std::min(s.chunk, s.bytes - hoard.held()),
                       static_cast<uint32_t>(s.seed * 7919 + hoard.held() / kPageBytes));
  }
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  const uint64_t taken = now_ns();
  if (result == CUDA_SUCCESS) sleep_until_ns(taken + s.hold_ms * 1'000'000);

  const uint32_t checksum = hoard.checksum();
  size_t free_bytes = 0, total_bytes = 0;
  check(cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo_v2");
  JsonLine line("memhog", session.device_name());
  line.add("asked_bytes", s.bytes)
      .add("held_bytes", hoard.held())
      .add("free_bytes", free_bytes)
      .add("total_bytes", total_bytes)
      .add("take_ms", static_cast<double>(taken - begin) / 1e6);
  conclude(line, checksum, checksum == hoard.expected_checksum(),
           "memory that was written changed");
  check(result, "cuMemAlloc_v2");
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("memhog", "takes GPU memory and holds it.")
