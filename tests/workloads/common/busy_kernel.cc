// SPDX-License-Identifier: Apache-2.0
#include "tests/workloads/common/busy_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpushare::workloads {
namespace {

constexpr double kSampleNs = 250'000;  // well inside one default time slice
constexpr int kSamples = 40;
constexpr int kMaxSamples = 2000;

}  // namespace

BusyKernel::BusyKernel(const GpuSession& session, unsigned blocks_per_sm)
    : session_(session),
      shape_{session.sm_count() * blocks_per_sm, 256},
      kernel_(session.kernel("gs_spin")),
      sum_(session.new_zeroed(sizeof(uint32_t))) {}

void BusyKernel::submit(CUstream stream, uint32_t seed, uint32_t units) {
  const kernels::Affine back =
      kernels::kRound.times(uint64_t{units} * kernels::kRoundsPerUnit).inverse();
  launch(kernel_, shape_, stream, sum_, seed, units, kernels::kRound.mul, kernels::kRound.add,
         back.mul, back.add);
  expected_ += kernels::sum_of_starts(seed, 0, shape_.total_threads());
}

// The kernel before the first event sees to it that this program has the GPU when the time begins.
double BusyKernel::sample_ns(CUstream stream, uint32_t units, CUevent start, CUevent end) {
  submit(stream, 0, units / 4 + 1);
  check(cuEventRecord(start, stream), "cuEventRecord");
  submit(stream, 0, units);
  check(cuEventRecord(end, stream), "cuEventRecord");
  check(cuEventSynchronize(end), "cuEventSynchronize");
  float ms = 0;
  check(cuEventElapsedTime(&ms, start, end), "cuEventElapsedTime");
  return static_cast<double>(ms) * 1e6;
}

// The difference between a short and a long kernel leaves out what a launch costs. A first guess
// gives kernels of the length to be measured.
double BusyKernel::calibrate(CUstream stream) {
  const CUevent start = session_.new_event(CU_EVENT_DEFAULT);
  const CUevent end = session_.new_event(CU_EVENT_DEFAULT);
  uint32_t units = 64;
  double ns = sample_ns(stream, units, start, end);
  while (ns < kSampleNs && units < (1u << 28)) {
    units *= 2;
    ns = std::min(sample_ns(stream, units, start, end), sample_ns(stream, units, start, end));
  }
  double shorter = std::numeric_limits<double>::max(), longer = shorter;
  // Beside other programs a sample counts only when no turn of theirs fell into it. Minima only get
  // better, so go on until they agree that twice the work takes about twice the time.
  const auto plausible = [&] { return longer > 1.6 * shorter && longer < 2.2 * shorter; };
  for (int i = 0; i < kSamples || (!plausible() && i < kMaxSamples); ++i) {
    shorter = std::min(shorter, sample_ns(stream, units, start, end));
    longer = std::min(longer, sample_ns(stream, 2 * units, start, end));
  }
  check(cuEventDestroy_v2(start), "cuEventDestroy_v2");
  check(cuEventDestroy_v2(end), "cuEventDestroy_v2");
  if (!plausible())
    die("calibration failed: twice the work did not take twice the time; give --ns-per-unit");
  ns_per_unit_ = (longer - shorter) / units;
  if (checksum() != expected_) die("wrong result while calibrating");
  check(cuMemsetD32_v2(sum_, 0, 1), "cuMemsetD32_v2");
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  expected_ = 0;
  return ns_per_unit_;
}

uint32_t BusyKernel::units_for_us(double us) const {
  const double units = std::round(us * 1000 / ns_per_unit_);
  return static_cast<uint32_t>(std::clamp(units, 1.0, 4e9));
}

uint32_t BusyKernel::checksum() const {
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  return session_.read_u32(sum_);
}

}  // namespace gpushare::workloads
