// SPDX-License-Identifier: Apache-2.0
// The functions of gpushare.h, as the library exports them. Any thread of the program.
#include <cstring>

#define GPUSHARE_FUNCTION(name, parameters, arguments) \
  __attribute__((visibility("default"))) int name parameters;
#include "intercept/api/gpushare.h"
#include "intercept/shim/iterations/progress.h"
#include "intercept/shim/link/quiet.h"

namespace gpushare::shim {
namespace {

static_assert(GPUSHARE_PREFILL == static_cast<int>(ShimPhase::kPrefill));
static_assert(GPUSHARE_DECODE == static_cast<int>(ShimPhase::kDecode));
static_assert(GPUSHARE_RECOGNISED == static_cast<int>(ShimSource::kRecognised));
static_assert(GPUSHARE_ANNOUNCED == static_cast<int>(ShimSource::kAnnounced));
static_assert(sizeof(gpushare_share::gpu) == sizeof(ShimGpu::pci));

Progress* progress() { return (attach() & kShimIterations) == 0 ? nullptr : Progress::get(); }

int result_of(bool was_noted) { return was_noted ? GPUSHARE_OK : GPUSHARE_BUSY; }

}  // namespace
}  // namespace gpushare::shim

using namespace gpushare::shim;

int gpushare_arrive(gpushare_iteration* iteration) {
  uint64_t arrived_ns = 0;
  Progress* mine = progress();
  if (mine == nullptr) return GPUSHARE_NOT_ATTACHED;
  const bool was_noted = mine->arrive(&arrived_ns);
  if (iteration != nullptr) iteration->arrived_ns = arrived_ns;
  return result_of(was_noted);
}

int gpushare_begin(gpushare_iteration* iteration, int phase) {
  Progress* mine = progress();
  if (mine == nullptr) return GPUSHARE_NOT_ATTACHED;
  if (iteration == nullptr || phase < GPUSHARE_UNKNOWN || phase > GPUSHARE_DECODE)
    return GPUSHARE_INVALID;
  uint64_t began_ns = 0;
  const bool was_noted = mine->begin(static_cast<gpushare::ShimPhase>(phase), &began_ns);
  iteration->began_ns = was_noted ? began_ns : 0;
  return result_of(was_noted);
}

int gpushare_end(gpushare_iteration* iteration) {
  Progress* mine = progress();
  if (mine == nullptr) return GPUSHARE_NOT_ATTACHED;
  if (iteration == nullptr || iteration->began_ns == 0) return GPUSHARE_INVALID;
  const gpushare_iteration ended = *iteration;
  *iteration = GPUSHARE_ITERATION;
  return result_of(mine->end(ended.began_ns, ended.arrived_ns));
}

int gpushare_set_slo(uint32_t us) {
  Progress* mine = progress();
  return mine == nullptr ? GPUSHARE_NOT_ATTACHED : result_of(mine->set_slo(us));
}

int gpushare_expect(uint64_t iterations) {
  Progress* mine = progress();
  return mine == nullptr ? GPUSHARE_NOT_ATTACHED : result_of(mine->expect(iterations));
}

int gpushare_read_iterations(gpushare_iterations* iterations) {
  if (progress() == nullptr) return GPUSHARE_NOT_ATTACHED;
  if (iterations == nullptr) return GPUSHARE_INVALID;
  gpushare::PublishedIterations known;
  if (!read_published(slot().iterations, &known)) return GPUSHARE_BUSY;
  *iterations = {.source = static_cast<uint32_t>(known.source),
                 .confidence = known.confidence,
                 .phase = static_cast<uint32_t>(known.phase),
                 .slo_us = known.slo_us,
                 .begun = known.begun,
                 .ended = known.ended,
                 .began_ns = known.began_ns,
                 .period_ns = known.period_ns,
                 .p99_ns = known.p99_ns};
  return GPUSHARE_OK;
}

int gpushare_read_share(unsigned n, gpushare_share* share) {
  if (attach() == 0) return GPUSHARE_NOT_ATTACHED;
  const gpushare::ShimSlot& mine = slot();
  const uint32_t count = mine.head.gpu_count.load(std::memory_order_acquire);
  if (share == nullptr || n >= count || n >= gpushare::kShimGpus) return GPUSHARE_INVALID;
  const gpushare::ShimGpu& gpu = mine.gpus[n];
  *share = {.gpu = {},
            .sms = gpu.sms.load(std::memory_order_relaxed),
            .sms_entitled = gpu.sms_entitled.load(std::memory_order_relaxed),
            .sms_in_use = gpu.sms_in_use.load(std::memory_order_relaxed),
            .reserved = 0};
  std::memcpy(share->gpu, gpu.pci, sizeof share->gpu);
  return GPUSHARE_OK;
}
