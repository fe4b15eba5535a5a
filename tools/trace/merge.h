// SPDX-License-Identifier: Apache-2.0
// Puts a recording of the GPU's switches into another program's trace of the same time, so that one
// viewer shows both: what a training step did, and who had the GPU meanwhile. Pure.
#pragma once

#include <string>
#include <string_view>

#include "shmctl/base/error.h"

namespace gpushare {

// What errors call the two, such as the names of their files.
struct TraceNames {
  std::string recording = "the recording";
  std::string other = "the other trace";
};

// `recording` is what trace_json() makes. `other` is Chrome trace JSON whose times can be told from
// the epoch: it has `baseTimeNanoseconds`, as torch.profiler's files and ours have, or its times
// are microseconds of the epoch, as those of its earlier versions. The result is `other` with our
// events added, in its time. Errors: invalid_argument when either is no such JSON, or `other` does
// not say when it was.
Result<std::string> merge_traces(std::string_view recording, std::string_view other,
                                 const TraceNames& names = {});

}  // namespace gpushare
