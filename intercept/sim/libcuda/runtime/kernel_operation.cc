// SPDX-License-Identifier: Apache-2.0
// The operation that launches a kernel: its parameters, its time on the simulated GPU, its effect.
#include <algorithm>
#include <cstring>
#include <optional>

#include "intercept/sim/libcuda/runtime/operation.h"

namespace gpushare::standin {
namespace {

// Reads the one buffer in `extra`, in which parameters lie at their natural alignment.
std::optional<std::pair<const char*, size_t>> parameter_buffer(void** extra) {
  const char* buffer = nullptr;
  const size_t* bytes = nullptr;
  for (; reinterpret_cast<uintptr_t>(*extra) != kCudaLaunchParamEnd; extra += 2) {
    const auto tag = reinterpret_cast<uintptr_t>(extra[0]);
    if (tag == kCudaLaunchParamBufferPointer) {
      buffer = static_cast<const char*>(extra[1]);
    } else if (tag == kCudaLaunchParamBufferSize) {
      bytes = static_cast<const size_t*>(extra[1]);
    } else {
      return std::nullopt;
    }
  }
  if (buffer == nullptr || bytes == nullptr) return std::nullopt;
  return std::pair{buffer, *bytes};
}

std::optional<std::vector<uint64_t>> gather_arguments(const KernelModel& kernel, void** parameters,
                                                      void** extra) {
  std::vector<uint64_t> arguments;
  if (kernel.parameter_bytes.empty()) return arguments;
  std::optional<std::pair<const char*, size_t>> buffer;
  if (parameters == nullptr) {
    if (extra == nullptr) return std::nullopt;
    buffer = parameter_buffer(extra);
    if (!buffer) return std::nullopt;
  }
  size_t offset = 0;
  for (size_t i = 0; i < kernel.parameter_bytes.size(); ++i) {
    const size_t bytes = kernel.parameter_bytes[i];
    const void* from = nullptr;
    if (buffer) {
      offset = (offset + bytes - 1) / bytes * bytes;
      if (offset + bytes > buffer->second) return std::nullopt;
      from = buffer->first + offset;
      offset += bytes;
    } else {
      from = parameters[i];
    }
    if (from == nullptr) return std::nullopt;
    uint64_t value = 0;
    std::memcpy(&value, from, bytes);
    arguments.push_back(value);
  }
  return arguments;
}

void fail_asynchronously(Context& context, CUresult failure) {
  CUresult none = CUDA_SUCCESS;
  context.failure.compare_exchange_strong(none, failure);
}

class KernelOperation : public Operation {
 public:
  KernelOperation(std::shared_ptr<const Function> function,
                  std::shared_ptr<const KernelLaunch> launch, uint32_t all_sms, KernelCall call)
      : Operation(CU_GRAPH_NODE_TYPE_KERNEL),
        function_(std::move(function)),
        launch_(std::move(launch)),
        all_sms_(all_sms),
        call_(std::move(call)) {
    for (uint64_t& argument : call_.arguments) call_.pointers.push_back(&argument);
  }
  const KernelCall* kernel() const override { return &call_; }

  Runtime::Submitted submit(Runtime& runtime, const std::shared_ptr<Context>& context,
                            Stream& stream) const override {
    const KernelModel& kernel = *function_->kernel;
    Work work{};
    work.sequence = runtime.new_sequence();
    work.kind = WorkKind::kKernel;
    work.amount = kernel.cost_ns(*launch_);
    const uint64_t used_sms = std::min<uint64_t>(launch_->blocks, launch_->sm_count);
    work.sm_ppm = static_cast<uint32_t>(
        std::max<uint64_t>(used_sms * 1'000'000 / std::max<uint64_t>(all_sms_, 1), 1));
    if (launch_->sm_groups != 0) {
      work.sm_groups = launch_->sm_groups;
      work.set_ppm = std::max<uint64_t>(
          uint64_t{launch_->sm_count} * 1'000'000 / std::max<uint64_t>(all_sms_, 1), work.sm_ppm);
    }
    if (!kernel.ends(*launch_)) work.kind = WorkKind::kEndless;
    if (kernel.is_endless) {
      const auto memory = endless_memory(*launch_, runtime.memory);
      if (memory.turns != nullptr) {
        work.kind = WorkKind::kEndless;
        runtime.watcher().watch({work.sequence, memory, launch_->blocks, work.amount});
      }
    }
    return runtime.submit(*context, stream, work,
                          [&runtime, launch = launch_, &kernel, context](const Completion& done) {
                            if (kernel.is_endless) runtime.watcher().forget(done.sequence);
                            if (kernel.run != nullptr && !kernel.run(*launch, runtime.memory))
                              fail_asynchronously(*context, CUDA_ERROR_ILLEGAL_ADDRESS);
                          });
  }

 private:
  const std::shared_ptr<const Function> function_;
  const std::shared_ptr<const KernelLaunch> launch_;
  const uint32_t all_sms_;
  KernelCall call_;  // does not change
};

}  // namespace

Made make_kernel(Runtime& runtime, const Sms& sms, CUfunction handle, Dimensions grid,
                 Dimensions block, void** parameters, void** extra) {
  auto function = runtime.functions.find(handle);
  if (!function) return {CUDA_ERROR_INVALID_HANDLE, {}};
  if (grid.product() == 0 || block.product() == 0 || block.product() > kMaxThreadsPerBlock ||
      grid.x > INT32_MAX || grid.y > UINT16_MAX || grid.z > UINT16_MAX)
    return {CUDA_ERROR_INVALID_VALUE, {}};
  auto arguments = gather_arguments(*function->kernel, parameters, extra);
  if (!arguments) return {CUDA_ERROR_INVALID_VALUE, {}};
  KernelCall call{handle, grid, block, *arguments, {}, sms.context};
  auto launch = std::make_shared<const KernelLaunch>(grid.product(), block.product(), sms.usable,
                                                     std::move(*arguments), sms.groups);
  return {CUDA_SUCCESS, std::make_shared<KernelOperation>(std::move(function), std::move(launch),
                                                          sms.all, std::move(call))};
}

Made make_kernel(Runtime& runtime, const Sms& sms, const CUDA_KERNEL_NODE_PARAMS_v2& parameters) {
  const auto& p = parameters;
  // The driver looks at `ctx` only where the kernel belongs to no context.
  const auto green = p.func == nullptr ? green_of(runtime, p.ctx) : nullptr;
  return make_kernel(runtime, green ? sms_of(*green) : sms,
                     p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern),
                     {p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ},
                     p.kernelParams, p.extra);
}

}  // namespace gpushare::standin
