// SPDX-License-Identifier: Apache-2.0
// Which jobs run, by the plans of all GPUs. A job on several GPUs runs on all of them or on none,
// and each GPU's plan knows its own jobs alone, so that plans may name different jobs first. Pure;
// any thread.
//
// Who wants the GPU and comes first on all of its GPUs runs, and leaves those out that need one of
// them; then those are asked who come first now, and so on, so that no GPU idles while a job that
// wants it could run. Where nobody comes first on all of its GPUs the plans wait for each other
// in a ring. There, of those that come first on one, the highest class goes first; in it who has
// had less than its shortest turn goes on, and otherwise who has waited longest begins.
//   GPU 0: a c, GPU 1: b a, GPU 2: c b; a on 0 and 1, b on 1 and 2, c on 2 and 0
//   -> who has waited longest runs for its shortest turn, and then the next one
//   GPU 0: a b, GPU 1: c a; a on both GPUs -> c, which comes first, and b, because a cannot run
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/jobs/job_order.h"

namespace gpushare {

// A job as it is now.
struct Contender {
  uint64_t id = 0;
  uint64_t gpus = 1;  // bit n: it works on GPU n
  Priority priority = Priority::kNormal;
  bool wants_gpu = false;
  bool runs = false;  // it has its turn
  Time since{};       // since when it runs, or has been waiting
};

// The jobs that are to run, ascending: of each GPU not more than its plan lets run. Where nobody
// wants a GPU, who has the turn by its plan keeps it. Of `orders` there is one for each GPU at
// most, ascending by GPU, and `contenders` are ascending by id. A job that a plan names and that is
// no contender is passed over. O(n log n) in the jobs that the plans name.
std::vector<uint64_t> who_runs(Time now, std::span<const JobOrder> orders,
                               std::span<const Contender> contenders);

}  // namespace gpushare
