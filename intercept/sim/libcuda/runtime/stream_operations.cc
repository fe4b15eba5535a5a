// SPDX-License-Identifier: Apache-2.0
// The operations that only order others: host functions, events, none, and one that consists of
// several.
#include "intercept/sim/libcuda/runtime/operation.h"

namespace gpushare::standin {
namespace {

Work work_of_kind(WorkKind kind) {
  Work work{};
  work.kind = kind;
  return work;
}

// A marker shows when the function must run, and a gate blocks what is behind it until the function
// has returned.
class HostOperation : public Operation {
 public:
  HostOperation(CUhostFn function, void* data)
      : Operation(CU_GRAPH_NODE_TYPE_HOST), function_(function), data_(data) {}

  Runtime::Submitted submit(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream) const override {
    Work gate = work_of_kind(WorkKind::kGate);
    gate.sequence = runtime.new_sequence();
    runtime.watcher().expect_host_function();
    // A gate can be opened only after it was submitted, so both must have happened.
    const auto announce = [&watcher = runtime.watcher(), function = function_, data = data_,
                           sequence = gate.sequence,
                           missing = std::make_shared<std::atomic<int>>(2)] {
      if (--*missing == 0) watcher.due(function, data, sequence);
    };
    const auto marked = runtime.submit(*context, stream, work_of_kind(WorkKind::kMarker),
                                       [announce](const Completion&) { announce(); });
    if (marked.first != CUDA_SUCCESS) return marked;
    const auto gated = runtime.submit(*context, stream, gate);
    if (gated.first == CUDA_SUCCESS) announce();
    return gated;
  }

 private:
  const CUhostFn function_;
  void* const data_;
};

class RecordOperation : public Operation {
 public:
  explicit RecordOperation(std::shared_ptr<Event> event)
      : Operation(CU_GRAPH_NODE_TYPE_EVENT_RECORD), event_(std::move(event)) {}

  Runtime::Submitted submit(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream) const override {
    auto point = std::make_shared<EventPoint>();
    const auto submitted =
        runtime.submit(*context, stream, work_of_kind(WorkKind::kMarker),
                       [point](const Completion& done) { point->finished_ns = done.finished_ns; });
    if (submitted.first != CUDA_SUCCESS) return submitted;
    point->sequence = submitted.second;
    const std::lock_guard lock(event_->mutex);
    event_->latest = std::move(point);
    event_->captured.reset();
    return submitted;
  }

 private:
  const std::shared_ptr<Event> event_;
};

// Waits for the recording that the event has when this is put in line.
class WaitOperation : public Operation {
 public:
  explicit WaitOperation(std::shared_ptr<Event> event)
      : Operation(CU_GRAPH_NODE_TYPE_WAIT_EVENT), event_(std::move(event)) {}

  Runtime::Submitted submit(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream) const override {
    const auto point = latest(*event_);
    Work wait = work_of_kind(point ? WorkKind::kWait : WorkKind::kMarker);
    if (point) wait.amount = point->sequence;
    return runtime.submit(*context, stream, wait);
  }

 private:
  const std::shared_ptr<Event> event_;
};

class Nothing : public Operation {
 public:
  Nothing() : Operation(CU_GRAPH_NODE_TYPE_EMPTY) {}
  Runtime::Submitted submit(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream) const override {
    return runtime.submit(*context, stream, work_of_kind(WorkKind::kMarker));
  }
};

class ChildOperation : public Operation {
 public:
  explicit ChildOperation(std::vector<OperationPtr> operations)
      : Operation(CU_GRAPH_NODE_TYPE_GRAPH), operations_(std::move(operations)) {}

  Runtime::Submitted submit(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream) const override {
    for (const OperationPtr& each : operations_)
      if (const auto submitted = each->submit(runtime, context, stream);
          submitted.first != CUDA_SUCCESS)
        return submitted;
    return runtime.submit(*context, stream, work_of_kind(WorkKind::kMarker));
  }

 private:
  const std::vector<OperationPtr> operations_;
};

}  // namespace

Made make_host_function(CUhostFn function, void* data) {
  if (function == nullptr) return {CUDA_ERROR_INVALID_VALUE, {}};
  return {CUDA_SUCCESS, std::make_shared<HostOperation>(function, data)};
}
OperationPtr make_record(std::shared_ptr<Event> event) {
  return std::make_shared<RecordOperation>(std::move(event));
}
OperationPtr make_wait(std::shared_ptr<Event> event) {
  return std::make_shared<WaitOperation>(std::move(event));
}
OperationPtr make_nothing() { return std::make_shared<Nothing>(); }
OperationPtr make_child(std::vector<OperationPtr> operations) {
  return std::make_shared<ChildOperation>(std::move(operations));
}

Sms all_sms(const Context& context) {
  const uint32_t all = context.device->about.sm_count;
  return {all, all, 0};
}
Sms sms_of(const Context& context, const Stream& stream) {
  const uint32_t all = context.device->about.sm_count;
  return {all, stream.usable_sms(all), stream.sm_groups};
}

}  // namespace gpushare::standin
