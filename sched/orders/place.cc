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

std::string gpus_text(size_t count) {
  return fmt::format("{} GPU{}", count, count == 1 ? "" : "s");
}

// Why it must wait, or would do so for ever.
Placement no_place(const PlaceJob& job, std::span<const PlaceGpu> gpus, size_t fitting) {
  const size_t wanted = std::max(job.gpus, 1U);
  Placement placement;
  if (gpus.size() < wanted) {
    placement.reason = fmt::format("needs {}, there are {}", gpus_text(wanted), gpus.size());
    placement.is_impossible = true;
    return placement;
  }
  const auto large_enough = static_cast<size_t>(std::ranges::count_if(
      gpus, [&](const PlaceGpu& gpu) { return job.bytes <= gpu.total_bytes; }));
  placement.is_impossible = large_enough < wanted;
  placement.reason =
      placement.is_impossible
          ? fmt::format("memory: needs {} MiB on {}, of {} only {} have so much", job.bytes >> 20,
                        gpus_text(wanted), gpus.size(), large_enough)
          : fmt::format("memory: needs {} MiB on {}, free on {}", job.bytes >> 20,
                        gpus_text(wanted), fitting);
  return placement;
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
  if (fitting.size() < wanted) return no_place(job, gpus, fitting.size());
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

void reserve(std::span<const PlaceWaiting> waiting, std::vector<PlaceGpu>& gpus) {
  for (const PlaceWaiting& one : waiting) {
    PlaceGpu* roomiest = nullptr;
    for (PlaceGpu& gpu : gpus) {
      if (one.bytes > gpu.total_bytes || one.gpu.value_or(gpu.index) != gpu.index) continue;
      if (roomiest == nullptr ||
          std::tuple(roomiest->free_bytes, gpu.index) < std::tuple(gpu.free_bytes, roomiest->index))
        roomiest = &gpu;
    }
    if (roomiest != nullptr) roomiest->free_bytes -= std::min(one.bytes, roomiest->free_bytes);
  }
}

Placement place_after(std::span<const PlaceWaiting> before, const PlaceJob& job,
                      std::vector<PlaceGpu> gpus, std::optional<uint32_t> only) {
  const auto place_there = [&] {
    std::vector<PlaceGpu> allowed = gpus;
    std::erase_if(allowed,
                  [&](const PlaceGpu& gpu) { return only.value_or(gpu.index) != gpu.index; });
    return place(job, allowed);
  };
  const Placement alone = place_there();
  if (alone.gpus.empty()) return alone;
  reserve(before, gpus);
  Placement after = place_there();
  if (after.gpus.empty()) after.reason = "memory: kept for those who asked before";
  return after;
}

double work_waiting(std::span<const JobView> jobs, const LengthMix& mix) {
  double sum = 0;
  for (const JobView& job : jobs)
    sum +=
        job.left ? std::max(static_cast<double>(job.left->count()), 0.0) : mix.index(job.service);
  return sum;
}

}  // namespace gpushare
