// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/libcuda/runtime/captures.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace gpushare::standin {
namespace {

thread_local CUstreamCaptureMode mode_of_thread = CU_STREAM_CAPTURE_MODE_GLOBAL;

using Nodes = std::vector<std::shared_ptr<Node>>;

// These nodes, and all that they depend on.
std::unordered_set<const Node*> all_before(const Nodes& last) {
  std::unordered_set<const Node*> all;
  std::vector<const Nodes*> lists{&last};
  while (!lists.empty()) {
    const Nodes& list = *lists.back();
    lists.pop_back();
    for (const auto& node : list)
      if (all.insert(node.get()).second) lists.push_back(&node->dependencies);
  }
  return all;
}

void add_missing(Nodes& to, const Nodes& from) {
  for (const auto& each : from)
    if (std::ranges::find(to, each) == to.end()) to.push_back(each);
}

}  // namespace

Captures::Part* Captures::part_of(const Stream& stream) {
  const auto found = parts_.find(&stream);
  return found == parts_.end() ? nullptr : &found->second;
}

CUresult Captures::begin(Runtime& runtime, const Context& context,
                         const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode) {
  if (stream == context.legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const std::lock_guard lock(mutex_);
  if (part_of(*stream) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>(std::make_shared<Graph>(runtime), stream.get(), mode,
                                           std::this_thread::get_id());
  parts_.emplace(stream.get(), Part{stream, std::move(capture), {}});
  count_ = parts_.size();
  return CUDA_SUCCESS;
}

CUresult Captures::end(const Stream& stream, std::shared_ptr<Graph>* graph) {
  const std::lock_guard lock(mutex_);
  const Part* part = part_of(stream);
  if (part == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const std::shared_ptr<Capture> capture = part->capture;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->thread != std::this_thread::get_id()) {
    // The capture is over even so, as on an H200.
    capture->is_over = true;
    std::erase_if(parts_, [&](const auto& item) { return item.second.capture == capture; });
    count_ = parts_.size();
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  if (capture->origin != &stream) {
    capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  const auto joined = all_before(part->last);
  const auto are_joined = [&](const Nodes& nodes) {
    return std::ranges::all_of(nodes,
                               [&](const auto& node) { return joined.contains(node.get()); });
  };
  const bool is_joined =
      are_joined(capture->left) && std::ranges::all_of(parts_, [&](const auto& item) {
        return item.second.capture != capture || are_joined(item.second.last);
      });
  std::erase_if(parts_, [&](const auto& item) { return item.second.capture == capture; });
  count_ = parts_.size();
  capture->is_over = true;
  if (capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!is_joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = std::move(capture->graph);
  return CUDA_SUCCESS;
}

CUstreamCaptureStatus Captures::status(const Stream& stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = parts_.find(&stream);
  if (found == parts_.end()) return CU_STREAM_CAPTURE_STATUS_NONE;
  return found->second.capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                           : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult Captures::status(const Context& context, const Stream& stream,
                          CUstreamCaptureStatus* status_of_stream) const {
  *status_of_stream = status(stream);
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
             parts_,
             [&](const auto& item) { return is_legacy_behind(context, stream, *item.first); })
             ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
             : CUDA_SUCCESS;
}

void Captures::drop(const Stream& stream) {
  if (count_ == 0) return;
  const std::lock_guard lock(mutex_);
  Part* part = part_of(stream);
  if (part == nullptr) return;
  const std::shared_ptr<Capture> capture = part->capture;
  capture->is_over = capture->origin == &stream;
  add_missing(capture->left, part->last);
  std::erase_if(parts_, [&](const auto& item) {
    return item.first == &stream || (capture->is_over && item.second.capture == capture);
  });
  count_ = parts_.size();
}

// --- what is put into a stream ------------------------------------------------------------------

bool Captures::is_legacy_behind(const Context& context, const Stream& stream,
                                const Stream& other) const {
  return &stream == context.legacy.get() && other.is_blocking() && other.context == stream.context;
}

// Requires that mutex_ is held. The legacy stream would have to wait for every blocking stream.
CUresult Captures::refuse_legacy(const Context& context, const Stream& stream) {
  CUresult result = CUDA_SUCCESS;
  for (auto& [other, part] : parts_) {
    if (!is_legacy_behind(context, stream, *other)) continue;
    part.capture->is_invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return result;
}

std::optional<CUresult> Captures::take(const Context& context, const Stream& stream,
                                       const OperationPtr& operation) {
  if (count_ == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (const CUresult refused = refuse_legacy(context, stream); refused != CUDA_SUCCESS)
    return refused;
  Part* part = part_of(stream);
  if (part == nullptr) return std::nullopt;
  if (part->capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  part->last = {part->capture->graph->add(operation, std::move(part->last))};
  return CUDA_SUCCESS;
}

std::optional<CUresult> Captures::take_record(const Context& context, const Stream& stream,
                                              Event& event) {
  if (count_ == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (const CUresult refused = refuse_legacy(context, stream); refused != CUDA_SUCCESS)
    return refused;
  const Part* part = part_of(stream);
  if (part == nullptr) return std::nullopt;
  if (part->capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const std::lock_guard event_lock(event.mutex);
  event.captured = std::make_shared<const CapturedPoint>(part->capture, part->last);
  return CUDA_SUCCESS;
}

std::optional<CUresult> Captures::take_wait(const Context& context,
                                            const std::shared_ptr<Stream>& stream, Event& event) {
  const auto point = captured_point(event);
  if (count_ == 0 && !point) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (const CUresult refused = refuse_legacy(context, *stream); refused != CUDA_SUCCESS)
    return refused;
  Part* part = part_of(*stream);
  if (part != nullptr && part->capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!point) {
    if (part == nullptr || !latest(event)) return std::nullopt;
    part->capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (point->capture->is_over) return CUDA_ERROR_CAPTURED_EVENT;
  if (stream == context.legacy) {
    point->capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (part == nullptr) {
    parts_.emplace(stream.get(), Part{stream, point->capture, point->nodes});
    count_ = parts_.size();
  } else if (part->capture == point->capture) {
    add_missing(part->last, point->nodes);
  } else {
    part->capture->is_invalid = point->capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  return CUDA_SUCCESS;
}

void Captures::refuse(const Stream& stream) {
  if (count_ == 0) return;
  const std::lock_guard lock(mutex_);
  if (const Part* part = part_of(stream)) part->capture->is_invalid = true;
}

// --- what the host may do during a capture -------------------------------------------------------

CUresult Captures::check_wait(const Context& context, const Stream& stream) {
  if (count_ == 0) return CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  if (const CUresult refused = refuse_legacy(context, stream); refused != CUDA_SUCCESS)
    return refused;
  const Part* part = part_of(stream);
  if (part == nullptr) return refuse_unsafe();
  part->capture->is_invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Captures::check_wait(const Context& context) {
  if (count_ == 0) return CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  CUresult result = CUDA_SUCCESS;
  for (auto& [stream, part] : parts_) {
    // For the driver of an H200 a stream in a part of the GPU belongs to a green context.
    if (stream->context != number_of(context.handle) || stream->sm_groups != 0) continue;
    part.capture->is_invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult Captures::check_wait(Event& event) {
  if (const auto point = captured_point(event)) {
    const std::lock_guard lock(mutex_);
    point->capture->is_invalid = true;
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  return check_unsafe();
}

CUresult Captures::check_unsafe() {
  if (count_ == 0) return CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  return refuse_unsafe();
}

// Requires that mutex_ is held.
CUresult Captures::refuse_unsafe() {
  if (mode_of_thread == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (auto& [stream, part] : parts_) {
    Capture& capture = *part.capture;
    const bool is_own = capture.thread == std::this_thread::get_id();
    const bool is_forbidden = is_own ? capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                     : capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                           mode_of_thread == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!is_forbidden) continue;
    capture.is_invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUstreamCaptureMode Captures::exchange_mode(CUstreamCaptureMode mode) {
  return std::exchange(mode_of_thread, mode);
}

// --- perform ------------------------------------------------------------------------------------

Runtime::Submitted perform(Runtime& runtime, const std::shared_ptr<Context>& context,
                           const std::shared_ptr<Stream>& stream, const OperationPtr& operation) {
  if (const auto taken = runtime.captures().take(*context, *stream, operation)) return {*taken, 0};
  return operation->submit(runtime, context, *stream);
}

}  // namespace gpushare::standin
