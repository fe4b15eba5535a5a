// SPDX-License-Identifier: Apache-2.0
// blocking: which calls of the driver wait behind a kernel that itself waits for the host, and
// which keep other threads' calls waiting meanwhile. A move of a stream must make none of these: a
// program whose kernel waits for the program's next call would stand still for good. Each line is
// one call that was made while such a kernel ran; it "blocks" if it did not return until the kernel
// was let go, a second later. It needs a real GPU.
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "intercept/shim/graphs/remake.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/green_context.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

// This kernel runs until *stop is not 0.
constexpr const char* kWait = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry wait(.param .u64 stop)
{
  .reg .u64 %stop;
  .reg .u32 %value;
  .reg .pred %is_held;
  ld.param.u64 %stop, [stop];
  cvta.to.global.u64 %stop, %stop;
HOLD:
  ld.volatile.global.u32 %value, [%stop];
  setp.eq.u32 %is_held, %value, 0;
  @%is_held bra HOLD;
  ret;
}
)";

const shim::GraphDriver kGraphDriver = GS_LINKED_GRAPH_DRIVER;

constexpr uint64_t kHold = 1'000'000'000, kBlocked = kHold / 2, kPoll = 100'000;

class Bench {
 public:
  explicit Bench(const GpuSession& session)
      : empty_(session.kernel("gs_empty")),
        note_(session.kernel("gs_note")),
        held_(session.new_stream()),
        held_blocking_(session.new_stream(CU_STREAM_DEFAULT)),
        other_(session.new_stream()),
        memory_(session.new_zeroed(sizeof value_)) {
    CUmodule module = nullptr;
    check(cuModuleLoadData(&module, kWait), "cuModuleLoadData");
    check(cuModuleGetFunction(&hold_, module, "wait"), "cuModuleGetFunction");
    void* memory = nullptr;
    check(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
    check(cuMemHostGetDevicePointer_v2(&on_gpu_, memory, 0), "cuMemHostGetDevicePointer_v2");
    stop_ = static_cast<uint32_t*>(memory);
    std::memset(memory, 0, 4096);
    check(cuCtxGetCurrent(&context_), "cuCtxGetCurrent");
    hold(held_);
    hold(held_blocking_);
    let_go();
    launch(empty_, {1, 1}, other_);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }

  // Times the call while a kernel waits. With `beside`, another thread makes a launch meanwhile.
  void time(const char* what, const std::function<void()>& call, bool beside = false) {
    time_behind(held_, what, call, beside);
  }
  // The same with a launch beside, for calls that wait for the kernel, as the legacy stream does.
  void time_wait(const char* what, const std::function<void()>& call) {
    time_behind(held_blocking_, what, call, true);
  }

  // Times the call while another thread is in cuMemFree, which waits for the kernel.
  void time_beside_free(const char* what, const std::function<void()>& call) {
    CUdeviceptr memory = 0;
    check(cuMemAlloc_v2(&memory, 1 << 20), "cuMemAlloc");
    hold(held_);
    const uint64_t begin = now_ns();
    uint64_t freed = 0, took = 0;
    std::thread frees([&] {
      check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
      check(cuMemFree_v2(memory), "cuMemFree");
      freed = now_ns() - begin;
    });
    std::thread caller([&] {
      check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
      sleep_until_ns(begin + kHold / 10);
      const uint64_t since = now_ns();
      call();
      took = now_ns() - since;
    });
    end_hold(begin, frees, caller);
    if (freed < kHold) die("cuMemFree did not wait for a kernel");
    JsonLine()
        .add("beside_cuMemFree", what)
        .add("us", static_cast<double>(took) / 1e3)
        .add("blocks", took > kBlocked)
        .print();
  }

  // Makes so many calls, one after the other, while a kernel waits, and says which of them have
  // waited for it: then another one is begun for the next call.
  void time_in_a_row(const char* what, uint64_t count, const std::function<void()>& call) {
    std::atomic<uint64_t> made{0};
    std::atomic<bool> is_held{false};
    std::thread caller([&] {
      check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
      for (uint64_t i = 0; i < count; ++i) {
        while (!is_held) sleep_until_ns(now_ns() + kPoll);
        call();
        ++made;
      }
    });
    std::string waited;
    while (made < count) {
      hold(held_);
      is_held = true;
      uint64_t before = made;
      for (uint64_t since = now_ns(); made < count && now_ns() < since + kBlocked;) {
        if (const uint64_t now = made; now != before) {
          before = now;
          since = now_ns();
        }
        sleep_until_ns(now_ns() + kPoll);
      }
      is_held = false;
      if (made == before && made < count)
        waited += (waited.empty() ? "" : ", ") + std::to_string(before + 1);
      let_go();
      check(cuStreamSynchronize(held_), "cuStreamSynchronize");
    }
    caller.join();
    JsonLine().add("in_a_row", what).add("count", count).add("waited", waited.c_str()).print();
  }

  CUfunction empty() const { return empty_; }
  CUfunction note() const { return note_; }
  CUstream other() const { return other_; }
  CUstream held_blocking() const { return held_blocking_; }
  CUdeviceptr word() const { return on_gpu_ + 1024; }
  CUdeviceptr memory() const { return memory_; }
  uint32_t* value() { return &value_; }  // pageable

 private:
  void time_behind(CUstream held, const char* what, const std::function<void()>& call,
                   bool beside) {
    hold(held);
    std::atomic<uint64_t> took{0}, beside_took{0};
    std::thread caller([&] {
      check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
      const uint64_t begin = now_ns();
      call();
      took = now_ns() - begin;
    });
    const uint64_t begin = now_ns();
    std::thread second([&] {
      if (!beside) return;
      sleep_until_ns(begin + kHold / 10);
      check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
      const uint64_t since = now_ns();
      launch(empty_, {1, 1}, other_);
      check(cuStreamSynchronize(other_), "cuStreamSynchronize");
      beside_took = now_ns() - since;
    });
    end_hold(begin, caller, second);
    JsonLine line;
    line.add("call", what)
        .add("us", static_cast<double>(took) / 1e3)
        .add("blocks", took > kBlocked);
    if (beside)
      line.add("launch_beside_us", static_cast<double>(beside_took) / 1e3)
          .add("blocks_others", beside_took > kBlocked);
    line.print();
  }

  void hold(CUstream stream) {
    *static_cast<volatile uint32_t*>(stop_) = 0;
    launch(hold_, {1, 1}, stream, on_gpu_);
  }
  void let_go() { *static_cast<volatile uint32_t*>(stop_) = 1; }
  // Lets the kernel go at its time, and waits for both threads and for the GPU.
  void end_hold(uint64_t begin, std::thread& one, std::thread& other) {
    sleep_until_ns(begin + kHold);
    let_go();
    one.join();
    other.join();
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }

  CUcontext context_ = nullptr;
  CUfunction hold_ = nullptr;
  const CUfunction empty_, note_;
  const CUstream held_, held_blocking_, other_;
  uint32_t value_ = 0;
  const CUdeviceptr memory_;
  uint32_t* stop_ = nullptr;
  CUdeviceptr on_gpu_ = 0;
};

struct Settings {
  uint64_t only_beside_free = 0, in_a_row = 0, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--only-beside-free", &only_beside_free, "1: only the calls beside cuMemFree",
              "--in-a-row", &in_a_row,
              "make only so many streams in one green context, and another as many");
    flags.parse(&device);
  }
};

// What a launch or a move may call.
void beside_free(const GpuSession& session, Bench& bench) {
  const GpuPart part(session, 24);
  CUcontext primary = nullptr;
  check(cuCtxGetCurrent(&primary), "cuCtxGetCurrent");
  CUgraph graph = nullptr, copy = nullptr;
  CUgraphExec exec = nullptr, own = nullptr;
  check(cuStreamBeginCapture_v2(bench.other(), CU_STREAM_CAPTURE_MODE_RELAXED),
        "cuStreamBeginCapture_v2");
  launch(bench.empty(), {1, 1}, bench.other());
  check(cuStreamEndCapture(bench.other(), &graph), "cuStreamEndCapture");
  check(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  check(cuGraphLaunch(exec, part.stream), "cuGraphLaunch");
  launch(bench.empty(), {1, 1}, part.stream);
  CUevent made = nullptr, old = nullptr;
  CUstream stream = nullptr;
  check(cuEventCreate(&old, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  check(cuEventRecord(old, part.stream), "cuEventRecord");
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  const auto time = [&](const char* what, const std::function<void()>& call) {
    bench.time_beside_free(what, call);
  };
  time("a launch", [&] { launch(bench.empty(), {1, 1}, bench.other()); });
  time("a launch in a part", [&] { launch(bench.empty(), {1, 1}, part.stream); });
  time("cuGraphLaunch in a part",
       [&] { check(cuGraphLaunch(exec, part.stream), "cuGraphLaunch"); });
  time("cuMemsetD32Async",
       [&] { check(cuMemsetD32Async(bench.memory(), 1, 1, bench.other()), "cuMemsetD32Async"); });
  time("cuEventCreate",
       [&] { check(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING), "cuEventCreate"); });
  time("cuEventRecord", [&] { check(cuEventRecord(old, part.stream), "cuEventRecord"); });
  time("cuStreamWaitEvent",
       [&] { check(cuStreamWaitEvent(bench.other(), old, 0), "cuStreamWaitEvent"); });
  time("cuEventQuery", [&] { static_cast<void>(cuEventQuery(old)); });
  time("cuEventSynchronize", [&] { check(cuEventSynchronize(old), "cuEventSynchronize"); });
  time("cuEventDestroy", [&] { check(cuEventDestroy_v2(made), "cuEventDestroy"); });
  time("cuStreamQuery", [&] { static_cast<void>(cuStreamQuery(part.stream)); });
  time("cuStreamIsCapturing", [&] {
    CUstreamCaptureStatus status{};
    check(cuStreamIsCapturing(part.stream, &status), "cuStreamIsCapturing");
  });
  time("cuThreadExchangeStreamCaptureMode", [&] {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    check(cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
  });
  time("cuCtxPushCurrent, cuCtxPopCurrent", [&] { const Current current(part.context); });
  time("cuStreamCreate",
       [&] { check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"); });
  time("cuStreamDestroy", [&] { check(cuStreamDestroy_v2(stream), "cuStreamDestroy"); });
  time("a graph made again for the part",
       [&] { copy = shim::remake(kGraphDriver, graph, part.context); });
  time("cuGraphInstantiate",
       [&] { check(cuGraphInstantiateWithFlags(&own, copy, 0), "cuGraphInstantiateWithFlags"); });
  time("cuGraphExecUpdate", [&] {
    CUgraphExecUpdateResultInfo_v1 info{};
    check(cuGraphExecUpdate_v2(own, copy, &info), "cuGraphExecUpdate");
  });
  time("cuGraphExecDestroy", [&] { check(cuGraphExecDestroy(own), "cuGraphExecDestroy"); });
}

// Which streams in green contexts are made only when what runs has ended.
void in_a_row(const GpuSession& session, Bench& bench, uint64_t count) {
  for (const unsigned sms : {8U, 16U}) {
    const CUgreenCtx green = green_context(session, describe_sms(session, sms));
    CUstream stream = nullptr;
    bench.time_in_a_row("cuGreenCtxStreamCreate", count, [&] { stream = stream_in(green); });
    bench.time_in_a_row("cuGreenCtxStreamCreate, a launch in each", count,
                        [&] { launch(bench.empty(), {1, 1}, stream_in(green)); });
  }
}

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_SPIN);
  Bench bench(session);
  if (s.in_a_row != 0) return in_a_row(session, bench, s.in_a_row), 0;
  if (s.only_beside_free != 0) return beside_free(session, bench), 0;
  bench.time("a launch in another stream", [&] { launch(bench.empty(), {1, 1}, bench.other()); });
  CUdevResourceDesc description = nullptr;
  bench.time("split and describe", [&] { description = describe_sms(session, 8); });
  CUgreenCtx green = nullptr;
  bench.time("cuGreenCtxCreate", [&] { green = green_context(session, description); });
  CUstream stream = nullptr;
  bench.time("cuGreenCtxStreamCreate", [&] { stream = stream_in(green); });
  bench.time("another cuGreenCtxStreamCreate", [&] { stream_in(green); });
  bench.time("first launch there", [&] { launch(bench.empty(), {1, 1}, stream); });
  bench.time("second launch there", [&] { launch(bench.empty(), {1, 1}, stream); });
  bench.time("first launch of another kernel there",
             [&] { launch(bench.note(), {1, 1}, stream, bench.word(), uint32_t{1}); });
  CUevent event = nullptr;
  check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  bench.time("event from there to another stream", [&] {
    check(cuEventRecord(event, stream), "cuEventRecord");
    check(cuStreamWaitEvent(bench.other(), event, 0), "cuStreamWaitEvent");
  });
  bench.time(
      "cuGreenCtxCreate, launch beside",
      [&] { green = green_context(session, describe_sms(session, 16)); }, true);
  bench.time("cuGreenCtxStreamCreate, launch beside", [&] { stream = stream_in(green); }, true);
  bench.time(
      "first launch there, launch beside", [&] { launch(bench.empty(), {1, 1}, stream); }, true);
  bench.time("64 times cuGreenCtxStreamCreate, a launch in each", [&] {
    for (int i = 0; i < 64; ++i) launch(bench.empty(), {1, 1}, stream_in(green));
  });
  bench.time("64 times cuStreamCreate, a launch in each", [&] {
    for (int i = 0; i < 64; ++i) launch(bench.empty(), {1, 1}, session.new_stream());
  });
  bench.time("64 events made, recorded and waited for", [&] {
    for (int i = 0; i < 64; ++i) {
      check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
      check(cuEventRecord(event, stream), "cuEventRecord");
      check(cuStreamWaitEvent(bench.other(), event, 0), "cuStreamWaitEvent");
    }
  });
  CUgraph graph = nullptr, copy = nullptr;
  CUgraphExec exec = nullptr;
  CUcontext there = nullptr;
  check(cuCtxFromGreenCtx(&there, green), "cuCtxFromGreenCtx");
  check(cuStreamBeginCapture_v2(bench.other(), CU_STREAM_CAPTURE_MODE_RELAXED),
        "cuStreamBeginCapture_v2");
  for (int i = 0; i < 64; ++i) launch(bench.empty(), {1, 1}, bench.other());
  check(cuStreamEndCapture(bench.other(), &graph), "cuStreamEndCapture");
  bench.time(
      "a graph made again for a green context, launch beside",
      [&] { copy = shim::remake(kGraphDriver, graph, there); }, true);
  bench.time(
      "cuGraphInstantiate of it, launch beside",
      [&] { check(cuGraphInstantiateWithFlags(&exec, copy, 0), "cuGraphInstantiateWithFlags"); },
      true);
  bench.time("its first launch there",
             [&] { check(cuGraphLaunch(exec, stream), "cuGraphLaunch"); });
  bench.time(
      "cuGraphExecDestroy, launch beside",
      [&] { check(cuGraphExecDestroy(exec), "cuGraphExecDestroy"); }, true);
  bench.time(
      "cuGreenCtxDestroy, launch beside",
      [&] { check(cuGreenCtxDestroy(green), "cuGreenCtxDestroy"); }, true);
  bench.time_wait("copy to the host without a stream, launch beside", [&] {
    check(cuMemcpyDtoH_v2(bench.value(), bench.memory(), sizeof(uint32_t)), "cuMemcpyDtoH_v2");
  });
  bench.time_wait("copy from the host without a stream, launch beside", [&] {
    check(cuMemcpyHtoD_v2(bench.memory(), bench.value(), sizeof(uint32_t)), "cuMemcpyHtoD_v2");
  });
  bench.time_wait("copy to the host in the kernel's stream, wait for it, launch beside", [&] {
    check(cuMemcpyDtoHAsync_v2(bench.value(), bench.memory(), sizeof(uint32_t),
                               bench.held_blocking()),
          "cuMemcpyDtoHAsync_v2");
    check(cuStreamSynchronize(bench.held_blocking()), "cuStreamSynchronize");
  });
  bench.time_wait("wait for the legacy stream, launch beside",
                  [&] { check(cuStreamSynchronize(GS_CU_STREAM_LEGACY), "cuStreamSynchronize"); });
  beside_free(session, bench);
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("blocking", "which calls wait behind a kernel that waits.")
