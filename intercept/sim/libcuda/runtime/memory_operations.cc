// SPDX-License-Identifier: Apache-2.0
// The operations that copy and fill. A copy takes its simulated time on a copy engine, a fill on
// the SMs. In a part of the GPU, copies and fills within the GPU's memory get that part of the
// rate. The host moves the bytes when the time has passed.
#include <algorithm>
#include <cstring>

#include "intercept/sim/libcuda/runtime/operation.h"

namespace gpushare::standin {
namespace {

class CopyOperation : public Operation {
 public:
  CopyOperation(const Work& work, void* to, const void* from, size_t bytes,
                std::shared_ptr<std::byte[]> staged)
      : Operation(CU_GRAPH_NODE_TYPE_MEMCPY),
        work_(work),
        to_(to),
        from_(from),
        bytes_(bytes),
        staged_(std::move(staged)) {}

  Runtime::Submitted submit(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream) const override {
    return runtime.submit(*context, stream, work_,
                          [to = to_, from = from_, bytes = bytes_,
                           staged = staged_](const Completion&) { std::memmove(to, from, bytes); });
  }

 private:
  const Work work_;
  void* const to_;
  const void* const from_;
  const size_t bytes_;
  const std::shared_ptr<std::byte[]> staged_;  // the memory of `from_`, if the operation owns it
};

template <class Value>
class FillOperation : public Operation {
 public:
  FillOperation(const Work& work, Value* begin, Value value, size_t count)
      : Operation(CU_GRAPH_NODE_TYPE_MEMSET),
        work_(work),
        begin_(begin),
        value_(value),
        count_(count) {}

  Runtime::Submitted submit(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream) const override {
    return runtime.submit(*context, stream, work_,
                          [begin = begin_, value = value_, count = count_](const Completion&) {
                            std::fill_n(begin, count, value);
                          });
  }

 private:
  const Work work_;
  Value* const begin_;
  const Value value_;
  const size_t count_;
};

template <class Value>
Made fill_of(Runtime& runtime, const Sms& sms, CUdeviceptr to, unsigned value, size_t count) {
  Value* begin = runtime.memory.resolve<Value>(to, count);
  if (begin == nullptr) return {CUDA_ERROR_INVALID_VALUE, {}};
  const double whole_ns = static_cast<double>(count) * sizeof(Value) / kMemoryBytesPerNs;
  Work work{};
  work.kind = WorkKind::kKernel;
  work.amount = kKernelOverheadNs + static_cast<uint64_t>(whole_ns * sms.all / sms.usable);
  work.sm_ppm = static_cast<uint32_t>(uint64_t{sms.usable} * 1'000'000 / sms.all);
  work.sm_groups = sms.groups;
  work.set_ppm = sms.groups == 0 ? 0 : work.sm_ppm;
  return {CUDA_SUCCESS,
          std::make_shared<FillOperation<Value>>(work, begin, static_cast<Value>(value), count)};
}

}  // namespace

Made make_copy(Runtime& runtime, const Sms& sms, void* to, const void* from, size_t bytes,
               Direction direction, bool is_staged) {
  if (to == nullptr || from == nullptr) return {CUDA_ERROR_INVALID_VALUE, {}};
  const auto resolves = [&](const void* address) {
    return runtime.memory.resolve(reinterpret_cast<uintptr_t>(address), bytes) != nullptr;
  };
  if ((direction != Direction::kHostToDevice && !resolves(from)) ||
      (direction != Direction::kDeviceToHost && !resolves(to)))
    return {CUDA_ERROR_INVALID_VALUE, {}};
  Work work{};
  work.kind = WorkKind::kCopy;
  work.direction = direction;
  work.amount = direction == Direction::kDeviceToDevice ? bytes * sms.all / sms.usable : bytes;
  std::shared_ptr<std::byte[]> staged;
  if (is_staged) {
    staged = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::memcpy(staged.get(), from, bytes);
    from = staged.get();
  }
  return {CUDA_SUCCESS, std::make_shared<CopyOperation>(work, to, from, bytes, std::move(staged))};
}

Made make_fill(Runtime& runtime, const Sms& sms, CUdeviceptr to, unsigned value,
               unsigned element_bytes, size_t count) {
  switch (element_bytes) {
    case 1:
      return fill_of<uint8_t>(runtime, sms, to, value, count);
    case 2:
      return fill_of<uint16_t>(runtime, sms, to, value, count);
    case 4:
      return fill_of<uint32_t>(runtime, sms, to, value, count);
    default:
      return {CUDA_ERROR_INVALID_VALUE, {}};
  }
}

}  // namespace gpushare::standin
