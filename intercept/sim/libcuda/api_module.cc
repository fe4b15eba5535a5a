// SPDX-License-Identifier: Apache-2.0
// Stand-in libcuda: modules, libraries and kernels' launches.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <optional>

#include "intercept/sim/libcuda/api.h"
#include "intercept/sim/libcuda/ptx_entries.h"

using gpushare::standin::Completion;
using gpushare::standin::Context;
using gpushare::standin::endless_memory;
using gpushare::standin::find_kernel;
using gpushare::standin::Function;
using gpushare::standin::KernelLaunch;
using gpushare::standin::KernelModel;
using gpushare::standin::kSmsOfGroup;
using gpushare::standin::Module;
using gpushare::standin::number_of;
using gpushare::standin::ptx_entries;
using gpushare::standin::Runtime;
using gpushare::standin::Work;
using gpushare::standin::WorkKind;

namespace {

constexpr uint64_t kMaxThreadsPerBlock = 1024;

struct Dimensions {
  unsigned x, y, z;
  uint64_t product() const { return uint64_t{x} * y * z; }
};

CUresult load(const void* image, uintptr_t context, std::shared_ptr<Module>* module) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto entries = ptx_entries(static_cast<const char*>(image));
  if (!entries) return CUDA_ERROR_INVALID_IMAGE;
  *module = std::make_shared<Module>(context, std::move(*entries));
  return CUDA_SUCCESS;
}

CUresult get_function(Runtime& runtime, const std::shared_ptr<Module>& module, const char* name,
                      CUfunction* function) {
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (std::ranges::find(module->entries, name) == module->entries.end())
    return CUDA_ERROR_NOT_FOUND;
  const KernelModel* kernel = find_kernel(name);
  if (kernel == nullptr) {
    fmt::print(stderr, "libcuda (simulated GPU): no model of kernel {}: it cannot be run here\n",
               name);
    return CUDA_ERROR_NOT_FOUND;
  }
  auto created = std::make_shared<Function>();
  created->module = module;
  created->context = module->context;
  created->kernel = kernel;
  *function = runtime.functions.add(std::move(created));
  return CUDA_SUCCESS;
}

void drop_functions(Runtime& runtime, const std::shared_ptr<Module>& module) {
  runtime.functions.remove_if([&](const Function& each) { return each.module == module; });
}

// The one buffer that `extra` gives, whose parameters lie at their natural alignment.
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

CUresult launch(CUfunction handle, Dimensions grid, Dimensions block, CUstream stream_handle,
                void** parameters, void** extra) {
  GS_CURRENT();
  const auto function = runtime.functions.find(handle);
  const auto stream = runtime.stream(context, stream_handle);
  if (!function || !stream) return CUDA_ERROR_INVALID_HANDLE;
  if (grid.product() == 0 || block.product() == 0 || block.product() > kMaxThreadsPerBlock ||
      grid.x > INT32_MAX || grid.y > UINT16_MAX || grid.z > UINT16_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  const KernelModel& kernel = *function->kernel;
  auto arguments = gather_arguments(kernel, parameters, extra);
  if (!arguments) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t all_sms = context.device->about.sm_count;
  const uint32_t usable_sms =
      stream->sm_groups == 0
          ? all_sms
          : kSmsOfGroup * static_cast<uint32_t>(std::popcount(stream->sm_groups));
  const auto launched = std::make_shared<const KernelLaunch>(
      grid.product(), block.product(), usable_sms, std::move(*arguments), stream->sm_groups);

  Work work{};
  work.sequence = runtime.new_sequence();
  work.kind = WorkKind::kKernel;
  work.amount = kernel.cost_ns(*launched);
  const uint64_t used_sms = std::min<uint64_t>(launched->blocks, usable_sms);
  work.sm_ppm = static_cast<uint32_t>(
      std::max<uint64_t>(used_sms * 1'000'000 / std::max<uint64_t>(all_sms, 1), 1));
  if (kernel.is_endless) {
    const auto memory = endless_memory(*launched, runtime.memory);
    if (memory.turns != nullptr) {
      work.kind = WorkKind::kEndless;
      runtime.watcher().watch({work.sequence, memory, launched->blocks, work.amount});
    }
  }
  return runtime
      .submit(context, *stream, work,
              [&runtime, launched, &kernel, context = now.context](const Completion& done) {
                if (kernel.is_endless) runtime.watcher().forget(done.sequence);
                if (kernel.run != nullptr && !kernel.run(*launched, runtime.memory))
                  fail_asynchronously(*context, CUDA_ERROR_ILLEGAL_ADDRESS);
              })
      .first;
}

}  // namespace

// --- modules ------------------------------------------------------------------------------------

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  GS_CURRENT();
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> loaded;
  const CUresult result = load(image, number_of(context.handle), &loaded);
  if (result == CUDA_SUCCESS) *module = runtime.modules.add(std::move(loaded));
  return result;
}

// Nothing is compiled, so the options have nothing to say, and the logs stay as they are.
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleUnload(CUmodule module) {
  GS_CURRENT();
  const auto removed = runtime.modules.remove(module);
  if (!removed) return CUDA_ERROR_INVALID_HANDLE;
  drop_functions(runtime, removed);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  GS_CURRENT();
  const auto found = runtime.modules.find(module);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  return get_function(runtime, found, name, function);
}

// --- libraries: modules for all contexts; a kernel is its function ------------------------------

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> loaded;
  const CUresult result = load(code, 0, &loaded);
  if (result == CUDA_SUCCESS)
    *library = reinterpret_cast<CUlibrary>(runtime->modules.add(std::move(loaded)));
  return result;
}

CUresult cuLibraryUnload(CUlibrary library) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto removed = runtime->modules.remove(reinterpret_cast<CUmodule>(library));
  if (!removed) return CUDA_ERROR_INVALID_HANDLE;
  drop_functions(*runtime, removed);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  Runtime* runtime = Runtime::get();
  if (runtime == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = runtime->modules.find(reinterpret_cast<CUmodule>(library));
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  CUfunction function = nullptr;
  const CUresult result = get_function(*runtime, found, name, &function);
  if (result == CUDA_SUCCESS) *kernel = reinterpret_cast<CUkernel>(function);
  return result;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  GS_CURRENT();
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto handle = reinterpret_cast<CUfunction>(kernel);
  if (!runtime.functions.find(handle)) return CUDA_ERROR_INVALID_HANDLE;
  *function = handle;
  return CUDA_SUCCESS;
}

// --- kernels ------------------------------------------------------------------------------------

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  GS_CURRENT();
  if (!runtime.functions.find(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = kMaxThreadsPerBlock;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 16;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = 70;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                        CUstream stream, void** parameters, void** extra) {
  return launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, stream, parameters,
                extra);
}

// Attributes change nothing in the simulation.
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch(function, {config->gridDimX, config->gridDimY, config->gridDimZ},
                {config->blockDimX, config->blockDimY, config->blockDimZ}, config->hStream,
                parameters, extra);
}
