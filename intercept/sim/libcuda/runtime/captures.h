// SPDX-License-Identifier: Apache-2.0
// Streams that record graphs. Several streams may record one: an event that was recorded in one of
// them carries the recording to a stream that waits for it. What cannot be recorded is refused, and
// ends the recordings that it would have to be in: they are invalid until the stream that began
// them ends them.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "intercept/sim/libcuda/runtime/graph.h"

namespace gpushare::standin {

struct Capture {
  std::shared_ptr<Graph> graph;
  const Stream* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;  // that began it
  bool is_invalid = false;
  bool is_over = false;
};

// A recording of an event in a stream that captures.
struct CapturedPoint {
  std::shared_ptr<Capture> capture;
  std::vector<std::shared_ptr<Node>> nodes;
};

class Captures {
 public:
  CUresult begin(Runtime& runtime, const Context& context, const std::shared_ptr<Stream>& stream,
                 CUstreamCaptureMode mode);
  // `*graph` is null unless all is well.
  CUresult end(const Stream& stream, std::shared_ptr<Graph>* graph);
  CUstreamCaptureStatus status(const Stream& stream) const;
  // Of a program's question, which the legacy stream has no answer to while a blocking one
  // captures.
  CUresult status(const Context& context, const Stream& stream,
                  CUstreamCaptureStatus* status_of_stream) const;
  // Its recording, if it takes part in one, becomes invalid.
  void drop(const Stream& stream);

  // What becomes of an operation in a stream. nullopt: nothing is recorded here, it runs.
  std::optional<CUresult> take(const Context& context, const Stream& stream,
                               const OperationPtr& operation);
  std::optional<CUresult> take_record(const Context& context, const Stream& stream, Event& event);
  std::optional<CUresult> take_wait(const Context& context, const std::shared_ptr<Stream>& stream,
                                    Event& event);

  // May the program ask about, or wait for: a stream; all streams; an event.
  CUresult check_wait(const Context& context, const Stream& stream);
  CUresult check_wait(const Context& context);
  CUresult check_wait(Event& event);
  // May this thread make a call that might wait for the GPU?
  CUresult check_unsafe();
  // What it asked for before.
  static CUstreamCaptureMode exchange_mode(CUstreamCaptureMode mode);

 private:
  struct Part {
    std::shared_ptr<Stream> stream;
    std::shared_ptr<Capture> capture;
    std::vector<std::shared_ptr<Node>> last;  // what the next operation is behind
  };

  bool is_legacy_behind(const Context& context, const Stream& stream, const Stream& other) const;
  CUresult refuse_unsafe();
  CUresult refuse_legacy(const Context& context, const Stream& stream);
  Part* part_of(const Stream& stream);

  mutable std::mutex mutex_;  // of what follows, and of all Captures
  std::unordered_map<const Stream*, Part> parts_;
  std::atomic<size_t> count_{0};  // of parts: nearly always 0
};

}  // namespace gpushare::standin
