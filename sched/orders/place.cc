// SPDX-License-Identifier: Apache-2.0
#include "sched/orders/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "sched/orders/times.h"

namespace gpushare {
namespace {

constexpr double kUnfriendly = 0.5;  // longer, for each

// When the job would end there, in ns from now.
double expected_end(const PlaceJob& job, const PlaceGpu& gpu) {
  double own = std::max(job.length, 0.0);
  const uint32_t best = job.knee == 0 ? gpu.groups : std::min(job.knee, gpu.groups);
  if (best > gpu.free_groups) own *= static_cast<double>(best) / std::max(gpu.free_groups, 1U);
  own *= 1 + kUnfriendly * gpu.unfriendly;
  return std::max(gpu.waiting, 0.0) + own;
}

Nanos nanos(double count) { return Nanos(static_cast<Nanos::rep>(std::min(count, 9e18))); }

}  // namespace

Placement place(const PlaceJob& job, std::span<const PlaceGpu> gpus) {
  const size_t wanted = std::max(job.gpus, 1U);
  struct Choice {
    const PlaceGpu* gpu;
    double end;
  };
  std::vector<Choice> fitting;
  for (const PlaceGpu& gpu : gpus)
    if (job.bytes <= gpu.free_bytes) fitting.push_back({&gpu, expected_end(job, gpu)});
  if (fitting.size() < wanted) {
    if (gpus.size() < wanted)
      return {{}, fmt::format("needs {} GPUs, there are {}", wanted, gpus.size())};
    return {{},
            fmt::format("memory: needs {} MiB on {} GPU{}, free on {}", job.bytes >> 20, wanted,
                        wanted == 1 ? "" : "s", fitting.size())};
  }
  std::ranges::sort(fitting, {}, [](const Choice& one) {
    return std::tuple(!one.gpu->has_partner, one.end, one.gpu->index);
  });
  fitting.resize(wanted);
  Placement placement;
  double end = 0;
  for (const Choice& one : fitting) {
    placement.gpus.push_back(one.gpu->index);
    end = std::max(end, one.end);
  }
  std::ranges::sort(placement.gpus);
  placement.reason = fitting.front().gpu->has_partner
                         ? "its tenant's other phase is there"
                         : fmt::format("ends there first, in {}", rough_text(nanos(end)));
  return placement;
}

double work_waiting(std::span<const JobView> jobs, const LengthMix& mix) {
  double sum = 0;
  for (const JobView& job : jobs)
    sum +=
        job.left ? std::max(static_cast<double>(job.left->count()), 0.0) : mix.index(job.service);
  return sum;
}

}  // namespace gpushare
