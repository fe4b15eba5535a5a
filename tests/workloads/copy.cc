// SPDX-License-Identifier: Apache-2.0
// copy: copies to the GPU, on the GPU and back again, from pinned and from pageable memory, and
// checks every byte that came back; prints the rate of each way.
#include <algorithm>
#include <cstring>
#include <vector>

#include "intercept/cuda/kernel_math.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{16} << 30;

struct Settings {
  uint64_t bytes = 64 << 20, rounds = 20, seed = 1, start_at = 0, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--bytes", &bytes, "size of a copy, a multiple of 4", "--rounds", &rounds,
              "copies of each kind", "--seed", &seed, "of the data", "--start-at", &start_at,
              "CLOCK_MONOTONIC ns to begin at, 0: now");
    flags.limit("--rounds", 1);
    flags.parse(&device);
    if (bytes == 0 || bytes % 4 != 0 || bytes > kMaxBytes)
      flags.fail("--bytes must be a multiple of 4, up to 16 GiB");
  }
};

struct Rates {
  double to_device = 0, on_device = 0, to_host = 0;  // GB/s, of the fastest copy
};

// One kind of host memory: there, across, and back, `rounds` times.
class Trip {
 public:
  Trip(const GpuSession& session, const Settings& s)
      : settings_(s),
        stream_(session.new_stream()),
        first_(session.new_zeroed(s.bytes)),
        second_(session.new_zeroed(s.bytes)) {}

  // Ends the program when a byte is wrong. Adds the data to the checksum.
  Rates run(uint32_t* out, uint32_t* back, uint32_t* checksum) const {
    const size_t words = settings_.bytes / sizeof(uint32_t);
    Rates best;
    for (uint64_t round = 0; round < settings_.rounds; ++round) {
      const auto seed = static_cast<uint32_t>(settings_.seed + round);
      for (size_t i = 0; i < words; ++i)
        out[i] = kernels::fill_value(seed, static_cast<uint32_t>(i));
      std::memset(back, 0, settings_.bytes);
      raise(best.to_device, [&] {
        check(cuMemcpyHtoDAsync_v2(first_, out, settings_.bytes, stream_), "cuMemcpyHtoDAsync_v2");
      });
      raise(best.on_device, [&] {
        check(cuMemcpyDtoDAsync_v2(second_, first_, settings_.bytes, stream_),
              "cuMemcpyDtoDAsync_v2");
      });
      raise(best.to_host, [&] {
        check(cuMemcpyDtoHAsync_v2(back, second_, settings_.bytes, stream_),
              "cuMemcpyDtoHAsync_v2");
      });
      if (std::memcmp(out, back, settings_.bytes) != 0) die("wrong result: the data changed");
      for (size_t i = 0; i < words; ++i)
        *checksum += kernels::fold_value(back[i], static_cast<uint32_t>(i));
    }
    return best;
  }

 private:
  template <class Copy>
  void raise(double& best, Copy copy) const {
    const uint64_t begin = now_ns();
    copy();
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    const auto ns = static_cast<double>(std::max<uint64_t>(now_ns() - begin, 1));
    best = std::max(best, static_cast<double>(settings_.bytes) / ns);
  }

  const Settings& settings_;
  const CUstream stream_;
  const CUdeviceptr first_, second_;
};

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  const Trip trip(session, s);
  uint32_t checksum = 0;

  void *out = nullptr, *back = nullptr;
  check(cuMemHostAlloc(&out, s.bytes, 0), "cuMemHostAlloc");
  check(cuMemHostAlloc(&back, s.bytes, 0), "cuMemHostAlloc");
  sleep_until_ns(s.start_at);
  const Rates pinned =
      trip.run(static_cast<uint32_t*>(out), static_cast<uint32_t*>(back), &checksum);
  check(cuMemFreeHost(out), "cuMemFreeHost");
  check(cuMemFreeHost(back), "cuMemFreeHost");

  std::vector<uint32_t> from(s.bytes / sizeof(uint32_t)), to(s.bytes / sizeof(uint32_t));
  const Rates pageable = trip.run(from.data(), to.data(), &checksum);

  JsonLine("copy", session.device_name())
      .add("bytes", s.bytes)
      .add("rounds", s.rounds)
      .add("pinned_to_device_gbps", pinned.to_device)
      .add("pinned_to_host_gbps", pinned.to_host)
      .add("pageable_to_device_gbps", pageable.to_device)
      .add("pageable_to_host_gbps", pageable.to_host)
      .add("on_device_gbps", std::max(pinned.on_device, pageable.on_device))
      .add("checksum", fmt::format("{:08x}", checksum))
      .add("verified", true)
      .print();
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("copy", "copies between host and GPU, and checks what comes back.")
