// SPDX-License-Identifier: Apache-2.0
// Operation: one thing that a stream can do. It is run at once, or kept in a graph and run by each
// of its launches. It never changes, so any thread may use it. The functions and events that it
// names live as long as it does; for memory the program must see to that.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "intercept/sim/libcuda/runtime/runtime.h"

namespace gpushare::standin {

struct Dimensions {
  unsigned x, y, z;
  uint64_t product() const { return uint64_t{x} * y * z; }
};

// What a kernel was launched with.
struct KernelCall {
  CUfunction function = nullptr;
  Dimensions grid{}, block{};
  std::vector<uint64_t> arguments;
  std::vector<void*> pointers;  // to them
  CUcontext context = nullptr;  // where it runs: the primary one, or that of a green context
};

class Operation {
 public:
  explicit Operation(CUgraphNodeType type) : type_(type) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  CUgraphNodeType type() const { return type_; }
  // Null if it is no kernel.
  virtual const KernelCall* kernel() const { return nullptr; }
  // Puts it in line and returns the sequence with which it ends.
  virtual Runtime::Submitted submit(Runtime& runtime, const std::shared_ptr<Context>& context,
                                    Stream& stream) const = 0;

 private:
  const CUgraphNodeType type_;
};
using OperationPtr = std::shared_ptr<const Operation>;

// An operation, or the reason why there is none.
struct Made {
  CUresult result = CUDA_SUCCESS;
  OperationPtr operation;
};

// The SMs that an operation may use, also when it is kept in a graph: those of the stream that it
// was made for, or all for a node that the program adds itself.
struct Sms {
  uint32_t all = 1, usable = 1;
  uint64_t groups = 0;
  CUcontext context = nullptr;
};
Sms sms_of(const Context& context, const Stream& stream);
Sms all_sms(const Context& context);
Sms sms_of(const Green& green);
// Those of the context that is current.
Sms sms_of(const Current& now);

Made make_kernel(Runtime& runtime, const Sms& sms, CUfunction function, Dimensions grid,
                 Dimensions block, void** parameters, void** extra);
Made make_kernel(Runtime& runtime, const Sms& sms, const CUDA_KERNEL_NODE_PARAMS_v2& parameters);
// With `is_staged` it copies what is at `from` now, otherwise what is there when it runs.
Made make_copy(Runtime& runtime, const Sms& sms, void* to, const void* from, size_t bytes,
               Direction direction, bool is_staged);
// `element_bytes` is 1, 2 or 4.
Made make_fill(Runtime& runtime, const Sms& sms, CUdeviceptr to, unsigned value,
               unsigned element_bytes, size_t count);
Made make_host_function(CUhostFn function, void* data);
// The stream goes on when the word of `bytes` (4 or 8) at `address` fulfils the condition of
// `flags` (CUstreamWaitValue_flags). INVALID_VALUE for memory that the GPU does not reach.
Made make_wait_for_value(Runtime& runtime, CUdeviceptr address, uint64_t value, unsigned bytes,
                         unsigned flags);
Made make_write_of_value(Runtime& runtime, CUdeviceptr address, uint64_t value, unsigned bytes,
                         unsigned flags);
OperationPtr make_record(std::shared_ptr<Event> event);
OperationPtr make_wait(std::shared_ptr<Event> event);
OperationPtr make_nothing();
// Runs them one after the other: CUDA lets the driver choose which branches of a graph run at the
// same time.
OperationPtr make_child(std::vector<OperationPtr> operations);

// Puts an operation in line, or into the graph that the stream captures.
Runtime::Submitted perform(Runtime& runtime, const std::shared_ptr<Context>& context,
                           const std::shared_ptr<Stream>& stream, const OperationPtr& operation);

}  // namespace gpushare::standin
