// SPDX-License-Identifier: Apache-2.0
// The operations by which a stream waits for a word of memory, and writes one. A wait is a marker,
// which shows when its turn has come, and a gate, which blocks what is behind it until the word
// fulfils the condition; the word may be changed by the program, by another process or by another
// stream, also back, and what counts is what a look finds.
#include <bit>
#include <type_traits>

#include "intercept/sim/libcuda/runtime/operation.h"

namespace gpushare::standin {
namespace {

class ValueOperation : public Operation {
 public:
  using Call =
      std::function<Runtime::Submitted(Runtime&, const std::shared_ptr<Context>&, Stream&)>;
  explicit ValueOperation(Call call)
      : Operation(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP), call_(std::move(call)) {}

  Runtime::Submitted submit(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream) const override {
    return call_(runtime, context, stream);
  }

 private:
  const Call call_;
};

template <class Word>
bool fulfils(Word word, Word value, unsigned flags) {
  switch (flags) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<Word>>(word - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return word == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (word & value) != 0;
    default:
      return static_cast<Word>(~(word | value)) != 0;
  }
}

// A word that is not reached any more holds nobody: a GPU would end the context.
template <class Word>
bool is_fulfilled(const Runtime& runtime, CUdeviceptr address, Word value, unsigned flags) {
  Word* const word = runtime.memory.resolve<Word>(address);
  return word == nullptr ||
         fulfils(std::atomic_ref(*word).load(std::memory_order_acquire), value, flags);
}

template <class Word>
ValueOperation::Call wait_for(CUdeviceptr address, Word value, unsigned flags) {
  return [=](Runtime& runtime, const auto& context, Stream& stream) -> Runtime::Submitted {
    Work gate{};
    gate.kind = WorkKind::kGate;
    gate.sequence = runtime.new_sequence();
    // A gate can be opened only after it was submitted, so both must have happened.
    const auto announce = [&runtime, address, value, flags, sequence = gate.sequence,
                           missing = std::make_shared<std::atomic<int>>(2)] {
      if (--*missing != 0) return;
      runtime.value_watcher().stop_when(
          [&runtime, address, value, flags] {
            return is_fulfilled(runtime, address, value, flags);
          },
          sequence);
    };
    Work marker{};
    marker.kind = WorkKind::kMarker;
    runtime.value_watcher().expect();
    const auto marked =
        runtime.submit(*context, stream, marker, [announce](const Completion&) { announce(); });
    if (marked.first != CUDA_SUCCESS) return marked;
    const auto gated = runtime.submit(*context, stream, gate);
    if (gated.first == CUDA_SUCCESS) announce();
    return gated;
  };
}

template <class Word>
ValueOperation::Call write_of(CUdeviceptr address, Word value) {
  return [=](Runtime& runtime, const auto& context, Stream& stream) {
    Work marker{};
    marker.kind = WorkKind::kMarker;
    runtime.value_watcher().expect();
    return runtime.submit(*context, stream, marker, [&runtime, address, value](const Completion&) {
      if (Word* const word = runtime.memory.resolve<Word>(address))
        std::atomic_ref(*word).store(value, std::memory_order_release);
      runtime.value_watcher().done();
    });
  };
}

bool is_reached(const Runtime& runtime, CUdeviceptr address, unsigned bytes) {
  return bytes == 4 ? runtime.memory.resolve<uint32_t>(address) != nullptr
                    : runtime.memory.resolve<uint64_t>(address) != nullptr;
}

}  // namespace

Made make_wait_for_value(Runtime& runtime, CUdeviceptr address, uint64_t value, unsigned bytes,
                         unsigned flags) {
  // As the attribute CAN_FLUSH_REMOTE_WRITES says.
  if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return {CUDA_ERROR_NOT_SUPPORTED, {}};
  if (flags > CU_STREAM_WAIT_VALUE_NOR || !is_reached(runtime, address, bytes))
    return {CUDA_ERROR_INVALID_VALUE, {}};
  return {CUDA_SUCCESS, std::make_shared<ValueOperation>(
                            bytes == 4 ? wait_for(address, static_cast<uint32_t>(value), flags)
                                       : wait_for(address, value, flags))};
}

Made make_write_of_value(Runtime& runtime, CUdeviceptr address, uint64_t value, unsigned bytes,
                         unsigned flags) {
  // NO_MEMORY_BARRIER is not for these versions of the functions, says NVIDIA's cuda.h, and a write
  // with it never arrives (H200, driver 580.159.04).
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT || !is_reached(runtime, address, bytes))
    return {CUDA_ERROR_INVALID_VALUE, {}};
  return {CUDA_SUCCESS, std::make_shared<ValueOperation>(
                            bytes == 4 ? write_of(address, static_cast<uint32_t>(value))
                                       : write_of(address, value))};
}

}  // namespace gpushare::standin
