// SPDX-License-Identifier: Apache-2.0
// On which GPU a job runs, on a machine with several: on the one where it is expected to end first,
// of those where its memory fits. A job that has been placed stays. Pure.
//
//   a job of 60 s that is best on 8 groups of SMs; GPU 0: 100 s of work wait, GPU 1: 70 s, but only
//   4 groups are free there -> 160 s and 70 + 120 = 190 s -> GPU 0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sched/orders/length_mix.h"
#include "sched/policy/job.h"

namespace gpushare {

struct PlaceJob {
  double length = 0;   // ns, alone; of one whose length is unknown, what the index says
  uint64_t bytes = 0;  // that it holds at most on each GPU; 0: unknown, fits everywhere
  uint32_t knee = 0;   // groups of SMs beyond which it gets no faster; 0: unknown, all of them
  uint32_t gpus = 1;   // that it works on at once, at least 1
};

struct PlaceGpu {
  uint32_t index = 0;
  uint64_t free_bytes = UINT64_MAX, total_bytes = UINT64_MAX;
  uint32_t groups = 0, free_groups = 0;  // of SMs; groups 0: shared by time, so all are free
  double waiting = 0;                    // ns of work that its jobs still have
  uint32_t unfriendly = 0;   // of its jobs, those that this one is remembered not to get on with
  bool has_partner = false;  // the same tenant's prefill (for a decode) or decode is there
};

struct Placement {
  std::vector<uint32_t> gpus;  // ascending; as many as the job works on, or none: it must wait
  std::string reason;          // for people: "ends there first: 1.2 min"
  bool is_impossible = false;  // it would wait for ever: no GPU is so large, or there are too few

  bool operator==(const Placement&) const = default;
};

// GPUs are given in any order; ties go to the lower index. Each GPU is given once.
Placement place(const PlaceJob& job, std::span<const PlaceGpu> gpus);

// One that waits for memory, and asked before.
struct PlaceWaiting {
  uint64_t bytes = 0;
  std::optional<uint32_t> gpu{};  // that it asked for; nullopt: any
};
// Keeps for each, in order, what it needs of the GPU on which most is free of those that it may
// have and that are large enough, so that nobody who asks later takes that from it.
void reserve(std::span<const PlaceWaiting> waiting, std::vector<PlaceGpu>& gpus);

// Where a job runs that comes after those: on the GPU `only`, or any. What is kept for them is not
// free.
Placement place_after(std::span<const PlaceWaiting> before, const PlaceJob& job,
                      std::vector<PlaceGpu> gpus, std::optional<uint32_t> only);

// What a GPU's jobs still have to do, in ns; those of unknown length by the index.
double work_waiting(std::span<const JobView> jobs, const LengthMix& mix);

}  // namespace gpushare
