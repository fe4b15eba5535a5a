// SPDX-License-Identifier: Apache-2.0
// Captures: the streams that record graphs. Several streams may record the same graph: an event
// that was recorded in one of them takes a stream that waits for it into the capture. An operation
// that cannot be captured is refused and makes invalid the captures that it would belong to, until
// the stream that began them ends them. Any thread may call.
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
  std::thread::id thread;  // the thread that began it
  bool is_invalid = false;
  bool is_over = false;
  // What streams that were destroyed since they joined have left in it. It must be joined, too.
  std::vector<std::shared_ptr<Node>> left;
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
  // `*graph` is null unless this succeeds.
  CUresult end(const Stream& stream, std::shared_ptr<Graph>* graph);
  CUstreamCaptureStatus status(const Stream& stream) const;
  // Answers a program's question. There is an error for the legacy stream while a blocking stream
  // captures.
  CUresult status(const Context& context, const Stream& stream,
                  CUstreamCaptureStatus* status_of_stream) const;
  // The stream is destroyed. A capture that it began can be ended by nobody any more.
  void drop(const Stream& stream);

  // Capture an operation in a stream. They return nullopt when the stream does not capture: then
  // the operation must be run.
  std::optional<CUresult> take(const Context& context, const Stream& stream,
                               const OperationPtr& operation);
  std::optional<CUresult> take_record(const Context& context, const Stream& stream, Event& event);
  std::optional<CUresult> take_wait(const Context& context, const std::shared_ptr<Stream>& stream,
                                    Event& event);
  // A call is refused. If the stream captures, that makes the capture invalid.
  void refuse(const Stream& stream);

  // Return success when the program may ask about, or wait for, a stream, all streams, or an event.
  CUresult check_wait(const Context& context, const Stream& stream);
  CUresult check_wait(const Context& context);
  CUresult check_wait(Event& event);
  // Returns success when this thread may make a call that might wait for the GPU.
  CUresult check_unsafe();
  // Sets the calling thread's mode and returns the previous one.
  static CUstreamCaptureMode exchange_mode(CUstreamCaptureMode mode);

 private:
  struct Part {
    std::shared_ptr<Stream> stream;
    std::shared_ptr<Capture> capture;
    std::vector<std::shared_ptr<Node>> last;  // what the next operation depends on
  };

  bool is_legacy_behind(const Context& context, const Stream& stream, const Stream& other) const;
  CUresult refuse_unsafe();
  CUresult refuse_legacy(const Context& context, const Stream& stream);
  Part* part_of(const Stream& stream);

  mutable std::mutex mutex_;  // protects the members that follow, and every Capture
  std::unordered_map<const Stream*, Part> parts_;
  std::atomic<size_t> count_{0};  // the size of parts_, which is nearly always 0
};

}  // namespace gpushare::standin
