// SPDX-License-Identifier: Apache-2.0
// Traces of jobs as text: CSV with a heading, one job a line. The agent writes its finished jobs in
// the same form (`jobs` in gpushare.toml(5)), and bench/sched/sacct_trace.py makes it from Slurm's.
//
//   job,submit_s,model,iterations,iteration_us,persistent_mib,ephemeral_mib,knee_permille,gpus
//   run-4711,0.5,resnet50,1200,110000,4008,0,1000,1
//
// Columns may stand in any order. job, submit_s, iterations and iteration_us must be there; of the
// others a job has what Job says where they are missing or empty. A field may be quoted as in RFC
// 4180, but not hold a line break. Lines that are empty or begin with # count for nothing.
#pragma once

#include <string>
#include <string_view>

#include "bench/sched/replay/jobs.h"
#include "shmctl/base/error.h"

namespace gpushare::replay {

// Sorted by submission. An error names the file, the line, the column and what is allowed: "FILE:7:
// iterations: '-3' is not allowed; allowed: 1 to 1000000000000".
Result<Jobs> parse_trace(std::string_view text, std::string_view file);
Result<Jobs> read_trace(const std::string& path);

// As parse_trace() reads it back, with all columns.
std::string trace_text(const Jobs& jobs);

}  // namespace gpushare::replay
