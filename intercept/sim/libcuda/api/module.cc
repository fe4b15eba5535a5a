// SPDX-License-Identifier: Apache-2.0
// The stand-in libcuda's functions for modules, libraries and launches of kernels.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>

#include "intercept/sim/libcuda/api/api.h"
#include "intercept/sim/libcuda/memory/ptx_entries.h"
#include "intercept/sim/libcuda/runtime/captures.h"
#include "intercept/sim/libcuda/runtime/operation.h"

using namespace gpushare::standin;

namespace {

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

bool are_at_once(Dimensions grid, Dimensions block, const Sms& sms) {
  return grid.product() <= sms.usable * blocks_of_sm(block.product());
}

// What a split leaves over has SMs of several parts of the GPU, and a cluster must be in one.
bool takes_clusters(const Sms& sms) {
  return sms.groups == 0 || std::countr_zero(sms.groups) < static_cast<int>(split_groups(sms.all));
}

CUresult launch(CUfunction function, Dimensions grid, Dimensions block, CUstream stream,
                void** parameters, void** extra) {
  GS_STREAM(stream);
  const auto made =
      make_kernel(runtime, sms_of(context, *found), function, grid, block, parameters, extra);
  if (made.result != CUDA_SUCCESS) {
    runtime.captures().refuse(*found);
    return made.result;
  }
  return perform(runtime, now.context, found, made.operation).first;
}

}  // namespace

// --- modules ------------------------------------------------------------------------------------

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  GS_CURRENT();
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult waited = runtime.wait(context, runtime.pending(context));
      waited != CUDA_SUCCESS)
    return waited;
  std::shared_ptr<Module> loaded;
  const CUresult result = load(image, number_of(context.handle), &loaded);
  if (result == CUDA_SUCCESS) *module = runtime.modules.add(std::move(loaded));
  return result;
}

// Nothing is compiled, so the options have no effect and the logs stay as they are.
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleUnload(CUmodule module) {
  GS_CURRENT();
  if (!runtime.modules.find(module)) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult waited = runtime.wait(context, runtime.pending(context));
      waited != CUDA_SUCCESS)
    return waited;
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

// --- libraries are modules for all contexts, and a kernel is its function
// ------------------------------

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

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t) {
  GS_CURRENT();
  if (!runtime.functions.find(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (blocks == nullptr || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  const auto count = static_cast<uint64_t>(threads);
  *blocks = count > kMaxThreadsPerBlock ? 0 : static_cast<int>(blocks_of_sm(count));
  return CUDA_SUCCESS;
}

// The largest block is always the best one.
CUresult cuOccupancyMaxPotentialBlockSize(int* blocks, int* threads, CUfunction function,
                                          CUoccupancyB2DSize, size_t, int most_threads) {
  GS_CURRENT();
  if (!runtime.functions.find(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (blocks == nullptr || threads == nullptr || most_threads < 0) return CUDA_ERROR_INVALID_VALUE;
  const auto largest = static_cast<int>(kMaxThreadsPerBlock);
  *threads = most_threads == 0 ? largest : std::min(most_threads, largest);
  *blocks = static_cast<int>(all_sms(context).all * blocks_of_sm(static_cast<uint64_t>(*threads)));
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                        CUstream stream, void** parameters, void** extra) {
  return launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, stream, parameters,
                extra);
}

// As the driver, it refuses a grid that is not on the stream's SMs all at once.
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned, CUstream stream, void** parameters) {
  GS_STREAM(stream);
  const Dimensions grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
  if (!are_at_once(grid, block, sms_of(context, *found)))
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  return launch(function, grid, block, stream, parameters, nullptr);
}

// Of the attributes only those count for which the driver may refuse a launch.
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GS_STREAM(config->hStream);
  const Sms sms = sms_of(context, *found);
  const Dimensions grid{config->gridDimX, config->gridDimY, config->gridDimZ};
  const Dimensions block{config->blockDimX, config->blockDimY, config->blockDimZ};
  for (const CUlaunchAttribute& one : std::span(config->attrs, config->numAttrs)) {
    const auto& [x, y, z] = one.value.clusterDim;
    if (one.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && one.value.cooperative != 0 &&
        !are_at_once(grid, block, sms))
      return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    if (one.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && uint64_t{x} * y * z > 1 &&
        !takes_clusters(sms))
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  return launch(function, grid, block, config->hStream, parameters, extra);
}
