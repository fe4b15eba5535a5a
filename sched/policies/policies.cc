// SPDX-License-Identifier: Apache-2.0
#include "sched/policies/policies.h"

#include "sched/orders/fifo.h"
#include "sched/orders/srtf.h"
#include "sched/orders/turns.h"
#include "sched/policies/tpot.h"
#include "sched/policy/fair.h"
#include "sched/slo/policy.h"

namespace gpushare {

std::vector<PolicyEntry> all_policies(KneeStore* knees, const LengthHistory* lengths,
                                      SloDecisions decisions) {
  const auto fair = [](const GpuView&, const PolicyOptions& options) {
    return std::make_unique<FairPolicy>(FairOptions::of(options));
  };
  const auto slo = [knees, decisions](const GpuView& gpu, const PolicyOptions& options) {
    return std::make_unique<SloPolicy>(gpu, FairOptions::of(options), knees,
                                       make_slo_decider(gpu.geometry.groups, decisions));
  };
  const auto fifo = [](const GpuView&, const PolicyOptions& options) {
    return std::make_unique<FifoPolicy>(options);
  };
  const auto srtf = [lengths](const GpuView&, const PolicyOptions& options) {
    return std::make_unique<SrtfPolicy>(options, lengths);
  };
  const auto turns = [](const GpuView&, const PolicyOptions& options) {
    return std::make_unique<TurnsPolicy>(options);
  };
  const auto tpot = [](const GpuView& gpu, const PolicyOptions& options) {
    return std::make_unique<TpotPolicy>(gpu, FairOptions::of(options));
  };
  constexpr PolicyNeeds kJobs{.iterations = true, .turns = true};
  // name, summary, needs, options, how it is made, check of the options together
  return {
      {"fair",
       "Divides time by weight, max and priority, and SMs by sm_percent.",
       {},
       kFairOptions,
       fair,
       check_fair},
      {"slo",
       "Gives each tenant with slo_us the SMs that it needs, the others the rest by weight.",
       {.iterations = true, .spatial = true},
       kTimeOptions,
       slo,
       check_fair},
      {"fifo", "Runs one job at a time, in the order of arrival.", kJobs, kOrderOptions, fifo},
      {"srtf",
       "Gives the GPU to the job that is done soonest; lengths are said, announced or learnt.",
       kJobs, kOrderOptions, srtf},
      {"turns", "Gives all jobs equal time by weight, in turns of whole iterations.", kJobs,
       kOrderOptions, turns},
      {"tpot",
       "Gives tokens (decode) the SMs that their target needs, and prompts (prefill) the rest.",
       {.iterations = true, .spatial = true},
       kTimeOptions,
       tpot,
       check_fair},
  };
}

}  // namespace gpushare
