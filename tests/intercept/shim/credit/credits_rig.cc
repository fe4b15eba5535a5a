// SPDX-License-Identifier: Apache-2.0
#include "tests/intercept/shim/credit/credits_rig.h"

#include <algorithm>

#include "intercept/shim/credit/watcher.h"
#include "intercept/shim/link/gate.h"

namespace gpushare::shim {

constinit Process the_process{};
std::unique_ptr<FakeGpu> the_gpu;
std::function<void()> on_host_wait;
bool is_the_agent_alive = true, has_memory_operations = true, can_be_watched = true;
int wakes = 0;
uint64_t now_ns = 1;
std::map<CUfunction, std::string> names;

// --- what the library has in attach.cc and gate.cc ----------------------------------------------

namespace detail {
constinit std::atomic<Process*> process{&the_process};
}
uint32_t attach() { return the_process.features.load(); }
uint64_t monotonic_ns() { return now_ns; }
bool is_agent_alive(const ShimSlot&) { return is_the_agent_alive; }
void wake_agent() { ++wakes; }
void wait_on(std::atomic<uint32_t>&, uint32_t) { on_host_wait(); }
void sleep_briefly(int64_t ns) {
  now_ns += static_cast<uint64_t>(ns);
  if (on_host_wait) on_host_wait();
}
bool start_watcher() { return can_be_watched; }

// --- the GPU ------------------------------------------------------------------------------------

namespace {
// On this GPU the addresses are those of the host.
std::atomic<uint32_t>& word_at(CUdeviceptr address) {
  return *reinterpret_cast<std::atomic<uint32_t>*>(static_cast<uintptr_t>(address));
}
}  // namespace

CUstream FakeGpu::create(bool is_blocking) {
  const auto handle = reinterpret_cast<CUstream>(next_handle_ += 64);
  queues_[handle].is_blocking = is_blocking;
  return handle;
}

void FakeGpu::give(CUstream stream, Given given) {
  Queue& queue = queues_[stream];
  given.number = next_number_++;
  if (given.kind == Given::Kind::kLaunch) given.value = slot_.credit.issued.load();
  queue.given.push_back(given);
}

void FakeGpu::record(CUevent event, CUstream stream) {
  give(stream, {.kind = Given::Kind::kRecord, .number = 0, .event = event});
  recordings_[event] = {stream, queues_[stream].given.size() - 1};
}

void FakeGpu::wait_for(CUstream stream, CUevent event) {
  const auto recorded = recordings_.find(event);
  if (recorded == recordings_.end()) return;
  const auto [from, index] = recorded->second;
  give(stream, {.kind = Given::Kind::kWaitForEvent,
                .number = 0,
                .event = reinterpret_cast<CUevent>(from),
                .awaited = index});
}

bool FakeGpu::has_run(CUevent event) {
  const auto recorded = recordings_.find(event);
  if (recorded == recordings_.end()) return true;
  return queues_[recorded->second.first].given[recorded->second.second].has_run;
}

bool FakeGpu::may_run(CUstream stream, const Given& given) {
  const bool is_legacy = stream == GS_CU_STREAM_LEGACY;
  for (auto& [other, queue] : queues_) {
    const bool is_ordered = (is_legacy && queue.is_blocking) ||
                            (other == GS_CU_STREAM_LEGACY && queues_[stream].is_blocking);
    if (other != stream && is_ordered && queue.next < queue.given.size() &&
        queue.given[queue.next].number < given.number)
      return false;
  }
  if (given.kind == Given::Kind::kWait)
    return credit_lacking(word_at(given.word).load(), given.value) <= 0;
  if (given.kind == Given::Kind::kWaitForEvent)
    return queues_[reinterpret_cast<CUstream>(given.event)].given[given.awaited].has_run;
  return true;
}

size_t FakeGpu::run(size_t most) {
  size_t begun = 0;
  for (bool has_run = true; has_run;) {
    has_run = false;
    for (auto& [stream, queue] : queues_) {
      while (queue.next < queue.given.size() && may_run(stream, queue.given[queue.next])) {
        if (queue.given[queue.next].kind == Given::Kind::kLaunch && begun == most) break;
        Given& given = queue.given[queue.next++];
        given.has_run = has_run = true;
        if (given.kind == Given::Kind::kWrite) word_at(given.word).store(given.value);
        if (given.kind != Given::Kind::kLaunch) continue;
        ++begun;
        run_ns_ += given.cost_ns;
      }
    }
  }
  return begun;
}

// --- the driver ---------------------------------------------------------------------------------

namespace {

uintptr_t next_event = 0x90000;
uint64_t last_cost_ns = 0;

const MemoryDriver kDriver{
    .cuCtxGetCurrent = [](CUcontext* context) { return *context = the_gpu->current, CUDA_SUCCESS; },
    .cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*,
                                     int* is_active) { return *is_active = 0, CUDA_SUCCESS; },
    .cuEventCreate =
        [](CUevent* event, unsigned) {
          return *event = reinterpret_cast<CUevent>(next_event += 64), CUDA_SUCCESS;
        },
    .cuEventElapsedTime =
        [](float* ms, CUevent, CUevent) {
          return *ms = static_cast<float>(last_cost_ns) / 1e6F, CUDA_SUCCESS;
        },
    .cuEventQuery =
        [](CUevent event) { return the_gpu->has_run(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; },
    .cuEventRecord =
        [](CUevent event, CUstream stream) {
          EXPECT_FALSE(the_gpu->queue(stream).is_capturing);
          return the_gpu->record(event, stream), CUDA_SUCCESS;
        },
    .cuMemHostGetDevicePointer_v2 =
        [](CUdeviceptr* pointer, void* host, unsigned) {
          return *pointer = reinterpret_cast<CUdeviceptr>(host), CUDA_SUCCESS;
        },
    .cuMemHostRegister_v2 = [](void*, size_t,
                               unsigned) { return the_gpu->is_pinned = true, CUDA_SUCCESS; },
    .cuStreamIsCapturing =
        [](CUstream stream, CUstreamCaptureStatus* status) {
          *status = the_gpu->queue(stream).is_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                        : CU_STREAM_CAPTURE_STATUS_NONE;
          return CUDA_SUCCESS;
        },
    .cuStreamWaitValue32_v2 =
        [](CUstream stream, CUdeviceptr word, uint32_t value, unsigned) {
          EXPECT_FALSE(the_gpu->queue(stream).is_capturing);
          if (the_gpu->answer_to_waits == CUDA_SUCCESS)
            the_gpu->give(stream,
                          {.kind = Given::Kind::kWait, .number = 0, .value = value, .word = word});
          return the_gpu->answer_to_waits;
        },
    .cuStreamWriteValue32_v2 =
        [](CUstream stream, CUdeviceptr word, uint32_t value, unsigned flags) {
          EXPECT_FALSE(the_gpu->queue(stream).is_capturing);
          if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
          if (the_gpu->answer_to_writes == CUDA_SUCCESS)
            the_gpu->give(stream,
                          {.kind = Given::Kind::kWrite, .number = 0, .value = value, .word = word});
          return the_gpu->answer_to_writes;
        },
    .cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; },
    .cuFuncGetName =
        [](const char** name, CUfunction function) {
          const auto known = names.find(function);
          if (known == names.end()) return CUDA_ERROR_INVALID_HANDLE;
          return *name = known->second.c_str(), CUDA_SUCCESS;
        },
    .cuKernelGetName = nullptr,
};

}  // namespace

const MemoryDriver* memory_driver() { return has_memory_operations ? &kDriver : nullptr; }

// --- a test -------------------------------------------------------------------------------------

void CreditsTest::start_over() {
  slot_ = std::make_unique<ShimSlot>();
  open_credit(*slot_);
  the_gpu = std::make_unique<FakeGpu>(*slot_);
  the_gpu->queue(GS_CU_STREAM_LEGACY);
  the_gpu->queue(GS_CU_STREAM_PER_THREAD).is_blocking = true;
  the_process.features = kShimGate | kShimCredit;
  the_process.slot = slot_.get();
  the_process.credits = nullptr;
  is_the_agent_alive = has_memory_operations = can_be_watched = true;
  names.clear();
  launches_ = 0;
}

void CreditsTest::launch(CUstream stream, uint64_t cost_ns, bool is_graph, CUfunction function) {
  const Credits::Launch launch{
      .stream = stream, .function = function, .of = is_graph ? Lengths::kGraph : Lengths::kKernel};
  last_cost_ns = cost_ns;
  const bool is_sample = credits().before_launch(slot(), launch);
  if (!the_gpu->queue(stream).is_capturing) {
    the_gpu->give(stream, {.kind = Given::Kind::kLaunch, .number = 0, .cost_ns = cost_ns});
    ++launches_;
  }
  if (is_sample) credits().after_launch(launch);
}

size_t CreditsTest::count(CUstream stream, Given::Kind kind) const {
  return static_cast<size_t>(std::ranges::count(the_gpu->queue(stream).given, kind, &Given::kind));
}

}  // namespace gpushare::shim
