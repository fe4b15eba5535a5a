// SPDX-License-Identifier: Apache-2.0
#include "sched/control/placing.h"

#include <algorithm>
#include <bit>
#include <map>

namespace gpushare {
namespace {

// Those on which a job has a process: bit n is GPU n.
std::map<uint64_t, uint64_t> gpus_of_jobs(const PlaneSnapshot& plane) {
  std::map<uint64_t, uint64_t> gpus;
  for (const auto& [slot, record] : plane.processes)
    if (record.job != 0) gpus[record.job] |= uint64_t{1} << record.gpu;
  return gpus;
}

// The jobs with a process on that GPU.
std::vector<JobView> jobs_on(uint32_t gpu, const PlaneSnapshot& plane,
                             const std::map<uint64_t, uint64_t>& gpus_of) {
  std::vector<JobView> jobs;
  for (const auto& [slot, record] : plane.processes) {
    if (record.gpu != gpu) continue;
    const bool is_known =
        record.job != 0 && std::ranges::find(jobs, record.job, &JobView::id) != jobs.end();
    if (is_known) continue;
    JobView& job = jobs.emplace_back(JobView{.id = record.job});
    job.service =
        Nanos(record.job != 0 ? record.job_service_ns /
                                    static_cast<uint64_t>(std::popcount(gpus_of.at(record.job)))
                              : record.gpu_time_ns);
    if (record.job_left_us != kUnknown64) job.left = Micros(record.job_left_us);
  }
  return jobs;
}

}  // namespace

std::vector<PlaceGpu> place_gpus(const PlaneSnapshot& plane, const LengthMix& mix) {
  const std::map<uint64_t, uint64_t> gpus_of = gpus_of_jobs(plane);
  std::vector<PlaceGpu> gpus;
  for (const GpuRecord& record : plane.gpus) {
    PlaceGpu& gpu = gpus.emplace_back(PlaceGpu{.index = record.index});
    if (record.memory_bytes != kUnknown64) {
      const uint64_t used = record.memory_used_bytes == kUnknown64 ? 0 : record.memory_used_bytes;
      gpu.total_bytes = record.memory_bytes;
      gpu.free_bytes = record.memory_bytes - std::min(used, record.memory_bytes);
    }
    gpu.waiting = work_waiting(jobs_on(record.index, plane, gpus_of), mix);
  }
  return gpus;
}

}  // namespace gpushare
