// SPDX-License-Identifier: Apache-2.0
// Records what the agent streams for `trace`, and meanwhile samples names and shares of the
// processes. One thread; blocks for the length of the recording.
#pragma once

#include <functional>

#include "tools/agent/client.h"
#include "tools/agent/status_source.h"
#include "tools/trace/writer.h"

namespace gpushare {

struct TraceResult {
  TraceRecording recording;
  bool was_interrupted = false;
  std::optional<Error> failure;  // the stream broke off; the recording holds what came before
};

// Ends after `length`, when `stop_fd` becomes readable, or when the stream breaks. `progress` is
// called about five times a second. It fails when the agent refused, and then nothing was recorded.
Result<TraceResult> record_trace(Client& client, StatusSource& source, Nanos length, int stop_fd,
                                 const std::function<void(Nanos, size_t)>& progress);

}  // namespace gpushare
