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

// An operation that is only a function.
class CallOperation : public Operation {
 public:
  using Call =
      std::function<Runtime::Submitted(Runtime&, const std::shared_ptr<Context>&, Stream&)>;
  CallOperation(CUgraphNodeType type, Call call) : Operation(type), call_(std::move(call)) {}

  Runtime::Submitted submit(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream) const override {
    return call_(runtime, context, stream);
  }

 private:
  const Call call_;
};

OperationPtr make_call(CUgraphNodeType type, CallOperation::Call call) {
  return std::make_shared<CallOperation>(type, std::move(call));
}

}  // namespace

// A marker shows when the function must run, and a gate blocks what is behind it until the function
// has returned.
Made make_host_function(CUhostFn function, void* data) {
  if (function == nullptr) return {CUDA_ERROR_INVALID_VALUE, {}};
  return {
      CUDA_SUCCESS,
      make_call(CU_GRAPH_NODE_TYPE_HOST,
                [=](Runtime& runtime, const auto& context, Stream& stream) -> Runtime::Submitted {
                  Work gate = work_of_kind(WorkKind::kGate);
                  gate.sequence = runtime.new_sequence();
                  runtime.watcher().expect();
                  // A gate can be opened only after it was submitted, so both must have happened.
                  const auto announce = [&watcher = runtime.watcher(), function, data,
                                         sequence = gate.sequence,
                                         missing = std::make_shared<std::atomic<int>>(2)] {
                    if (--*missing == 0) watcher.due(function, data, sequence);
                  };
                  const auto marked =
                      runtime.submit(*context, stream, work_of_kind(WorkKind::kMarker),
                                     [announce](const Completion&) { announce(); });
                  if (marked.first != CUDA_SUCCESS) return marked;
                  const auto gated = runtime.submit(*context, stream, gate);
                  if (gated.first == CUDA_SUCCESS) announce();
                  return gated;
                })};
}

OperationPtr make_record(std::shared_ptr<Event> event) {
  return make_call(
      CU_GRAPH_NODE_TYPE_EVENT_RECORD,
      [event = std::move(event)](Runtime& runtime, const auto& context, Stream& stream) {
        auto point = std::make_shared<EventPoint>();
        const auto submitted = runtime.submit(
            *context, stream, work_of_kind(WorkKind::kMarker),
            [point](const Completion& done) { point->finished_ns = done.finished_ns; });
        if (submitted.first != CUDA_SUCCESS) return submitted;
        point->sequence = submitted.second;
        const std::lock_guard lock(event->mutex);
        event->latest = std::move(point);
        event->captured.reset();
        return submitted;
      });
}

// Waits for the recording that the event has when this is put in line.
OperationPtr make_wait(std::shared_ptr<Event> event) {
  return make_call(
      CU_GRAPH_NODE_TYPE_WAIT_EVENT,
      [event = std::move(event)](Runtime& runtime, const auto& context, Stream& stream) {
        const auto point = latest(*event);
        Work wait = work_of_kind(point ? WorkKind::kWait : WorkKind::kMarker);
        if (point) wait.amount = point->sequence;
        return runtime.submit(*context, stream, wait);
      });
}

OperationPtr make_nothing() {
  return make_call(CU_GRAPH_NODE_TYPE_EMPTY,
                   [](Runtime& runtime, const auto& context, Stream& stream) {
                     return runtime.submit(*context, stream, work_of_kind(WorkKind::kMarker));
                   });
}

OperationPtr make_child(std::vector<OperationPtr> operations) {
  return make_call(
      CU_GRAPH_NODE_TYPE_GRAPH,
      [operations = std::move(operations)](Runtime& runtime, const auto& context, Stream& stream) {
        for (const OperationPtr& each : operations)
          if (const auto submitted = each->submit(runtime, context, stream);
              submitted.first != CUDA_SUCCESS)
            return submitted;
        return runtime.submit(*context, stream, work_of_kind(WorkKind::kMarker));
      });
}

Sms all_sms(const Context& context) {
  const uint32_t all = context.device->about.sm_count;
  return {all, all, 0, context.handle};
}
Sms sms_of(const Context& context, const Stream& stream) {
  const uint32_t all = context.device->about.sm_count;
  return {all, stream.usable_sms(all), stream.sm_groups,
          stream.green != nullptr ? stream.green : context.handle};
}
Sms sms_of(const Green& green) {
  const uint32_t all = green.device->about.sm_count;
  return {all, sms_in(green.sm_groups, all), green.sm_groups, green.handle};
}
Sms sms_of(const Current& now) { return now.green ? sms_of(*now.green) : all_sms(*now.context); }

}  // namespace gpushare::standin
