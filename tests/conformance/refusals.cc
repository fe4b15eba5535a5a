// SPDX-License-Identifier: Apache-2.0
// Calls that are refused, after which everything still works. Handles of destroyed objects are not
// tried, as CUDA does not define what they do.
#include "tests/conformance/scenes.h"

namespace gpushare::conformance {
namespace {

void launches(Stage& stage) {
  const CUfunction kernel = stage.note_kernel();
  CUdeviceptr list = stage.list();
  uint32_t what = 'x';
  void* parameters[] = {&list, &what};
  const auto launch = [&](CUfunction function, unsigned grid, unsigned block) {
    return name_of(
        cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, nullptr, parameters, nullptr));
  };
  stage.say("no blocks " + launch(kernel, 0, 1));
  stage.say("no threads " + launch(kernel, 1, 0));
  stage.say("2048 threads " + launch(kernel, 1, 2048));
  stage.say("no kernel " + launch(nullptr, 1, 1));
}

void memory(Stage& stage) {
  CUdeviceptr pointer = 0;
  uint32_t value = 0;
  void* host = nullptr;
  stage.say("of 0 bytes " + name_of(cuMemAlloc_v2(&pointer, 0)));
  stage.say("freed at 0 " + name_of(cuMemFree_v2(0)));
  stage.say("copy from 0 " + name_of(cuMemcpyDtoH_v2(&value, 0, sizeof value)));
  stage.say("copy of nothing " + name_of(cuMemcpyDtoH_v2(&value, stage.list(), 0)));
  stage.say("host flags " + name_of(cuMemHostAlloc(&host, 4, 0x100)));
}

void streams_and_events(Stage& stage) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  stage.say("stream flags " + name_of(cuStreamCreate(&stream, 8)));
  stage.say("event flags " + name_of(cuEventCreate(&event, 0x100)));
  stage.say("query " + name_of(cuEventQuery(nullptr)));
  stage.say("record " + name_of(cuEventRecord(nullptr, nullptr)));
  stage.say("wait " + name_of(cuStreamWaitEvent(nullptr, nullptr, 0)));
  stage.say("no function " + name_of(cuLaunchHostFunc(nullptr, nullptr, nullptr)));
}

void devices_and_modules(Stage& stage) {
  CUdevice device = 0;
  CUmodule module = nullptr;
  stage.say("device " + name_of(cuDeviceGet(&device, 99)));
  stage.say("flags of init " + name_of(cuInit(1)));
  stage.say("no image " + name_of(cuModuleLoadData(&module, nullptr)));
}

constexpr Scene kScenes[] = {
    {"launches that are refused", launches},
    {"memory that is refused", memory},
    {"streams and events that are refused", streams_and_events},
    {"devices and modules that are refused", devices_and_modules},
};

}  // namespace

std::span<const Scene> refusal_scenes() { return kScenes; }

}  // namespace gpushare::conformance
