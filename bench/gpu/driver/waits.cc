// SPDX-License-Identifier: Apache-2.0
// waits: which calls of the host return only when work on the GPU has ended, by what the work is
// and in which part of the GPU its stream is. Some calls wait by their meaning, as cuCtxSynchronize
// does, others by the way, as cuMemFree. A program may rest on either, so where the driver waits
// for work in the whole GPU and not for the same in a part of it, the shim must. Each line is one
// kind of work in one place: how often each call had waited. It needs a real GPU.
#include <dlfcn.h>

#include <functional>
#include <thread>
#include <vector>

#include "intercept/cuda/kernel_math.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/green_context.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

constexpr uint64_t kWorkNs = 20'000'000;

struct Settings {
  uint64_t times = 2, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--times", &times, "that each call is tried behind each kind of work");
    flags.limit("--times", 1);
    flags.parse(&device);
  }
};

// Memory of the host that the GPU can write.
struct Pinned {
  explicit Pinned(size_t words) {
    void* memory = nullptr;
    check(cuMemHostAlloc(&memory, words * sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP),
          "cuMemHostAlloc");
    host = static_cast<volatile uint32_t*>(memory);
    check(cuMemHostGetDevicePointer_v2(&on_gpu, memory, 0), "cuMemHostGetDevicePointer_v2");
    for (size_t i = 0; i < words; ++i) host[i] = 0;
  }
  volatile uint32_t* host = nullptr;
  CUdeviceptr on_gpu = 0;
};

// Work that takes some 20 ms and, when it ends, writes a word that the host sees.
class Work {
 public:
  explicit Work(const GpuSession& session)
      : spin_(session.kernel("gs_spin")),
        note_(session.kernel("gs_note")),
        sink_(session.new_zeroed(sizeof(uint32_t))),
        list_(64),
        held_(1) {
    const CUstream stream = session.new_stream();
    for (int round = 0; round < 2; ++round) {  // the first loads the kernels
      const uint64_t begin = now_ns();
      units_ = 1000;
      kernels(stream);
      check(cuStreamSynchronize(stream), "cuStreamSynchronize");
      const auto took = static_cast<double>(now_ns() - begin);
      units_ = static_cast<uint32_t>(static_cast<double>(kWorkNs) * units_ / took) + 1;
    }
  }
  ~Work() { let_go(); }

  void kernels(CUstream stream) {
    spin(stream);
    launch(note_, {1, 1}, stream, list_.on_gpu, 1u);
  }
  void copy(CUstream stream) {
    spin(stream);
    check(cuMemcpyDtoDAsync_v2(list_.on_gpu, list_.on_gpu + kOne, sizeof(uint32_t), stream),
          "cuMemcpyDtoDAsync");
  }
  void fill(CUstream stream) {
    spin(stream);
    check(cuMemsetD32Async(list_.on_gpu, 1, 1, stream), "cuMemsetD32Async");
  }
  void host_function(CUstream stream) {
    const auto function = [](void* work) {
      sleep_until_ns(now_ns() + kWorkNs);
      static_cast<Work*>(work)->list_.host[0] = 1;
    };
    check(cuLaunchHostFunc(stream, function, this), "cuLaunchHostFunc");
  }
  void held_by_value(CUstream stream) {
    let_go();
    held_.host[0] = 0;
    check(cuStreamWaitValue32_v2(stream, held_.on_gpu, 1, CU_STREAM_WAIT_VALUE_EQ),
          "cuStreamWaitValue32");
    check(cuMemsetD32Async(list_.on_gpu, 1, 1, stream), "cuMemsetD32Async");
    lets_go_ = std::thread([this] {
      sleep_until_ns(now_ns() + kWorkNs);
      held_.host[0] = 1;
    });
  }
  CUgraphExec graph(CUstream captured_in) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    check(cuStreamBeginCapture_v2(captured_in, CU_STREAM_CAPTURE_MODE_RELAXED),
          "cuStreamBeginCapture_v2");
    kernels(captured_in);
    check(cuStreamEndCapture(captured_in, &graph), "cuStreamEndCapture");
    check(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    check(cuGraphDestroy(graph), "cuGraphDestroy");
    return exec;
  }
  void spin(CUstream stream) {
    launch(spin_, {1, 32}, stream, sink_, 1u, units_, kernels::kRound.mul, kernels::kRound.add, 1u,
           0u);
  }

  void reset() {
    list_.host[0] = 0;
    list_.host[kOne / sizeof(uint32_t)] = 1;
  }
  bool has_ended() const { return list_.host[0] != 0; }

 private:
  static constexpr size_t kOne = 128;  // bytes from the list's beginning to a word that is 1
  void let_go() {
    if (lets_go_.joinable()) lets_go_.join();
  }

  const CUfunction spin_, note_;
  const CUdeviceptr sink_;
  const Pinned list_, held_;
  uint32_t units_ = 1000;
  std::thread lets_go_;
};

// A call, what must be there before the work begins, and what ends that again.
struct Call {
  const char* name;
  std::function<void()> prepare, call, clean;
};

struct Place {
  const char* name;
  CUcontext context;
  CUstream stream;
};

constexpr size_t kBytes = 8 << 20;

// What the calls of one line use.
struct Things {
  CUdeviceptr memory = 0;
  void *pinned = nullptr, *registered = nullptr;
  CUmodule module = nullptr;
  CUmemGenericAllocationHandle piece = 0;
  CUdeviceptr mapped = 0;
  CUevent event = nullptr;
  CUstream stream = nullptr;
  void *array = nullptr, *mipmaps = nullptr, *library = nullptr, *kernel = nullptr, *pool = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
};

constexpr const char* kModule = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
)";

// A function of libcuda that no other program here calls.
template <class Signature>
Signature* called(const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) die(std::string(name) + " is not there");
  return reinterpret_cast<Signature*>(found);
}

std::vector<Call> calls_of(Things& t, const GpuSession& session, const Place& place) {
  const auto nothing = [] {};
  const auto allocate = [&t] { check(cuMemAlloc_v2(&t.memory, kBytes), "cuMemAlloc"); };
  const auto release = [&t] { check(cuMemFree_v2(t.memory), "cuMemFree"); };
  const auto pin = [&t] { check(cuMemHostAlloc(&t.pinned, kBytes, 0), "cuMemHostAlloc"); };
  const auto unpin = [&t] { check(cuMemFreeHost(t.pinned), "cuMemFreeHost"); };
  const auto enroll = [&t] {
    t.registered = std::aligned_alloc(4096, kBytes);
    check(cuMemHostRegister_v2(t.registered, kBytes, 0), "cuMemHostRegister");
  };
  const auto strike = [&t] { check(cuMemHostUnregister(t.registered), "cuMemHostUnregister"); };
  const auto drop = [&t] { std::free(t.registered); };
  const CUmemAllocationProp kind{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = {},
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, session.device()},
                                 .win32HandleMetaData = nullptr,
                                 .allocFlags = {}};
  const auto map = [&t, kind] {
    check(cuMemAddressReserve(&t.mapped, kBytes, 0, 0, 0), "cuMemAddressReserve");
    check(cuMemCreate(&t.piece, kBytes, &kind, 0), "cuMemCreate");
    check(cuMemMap(t.mapped, kBytes, 0, t.piece, 0), "cuMemMap");
    const CUmemAccessDesc access{kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    check(cuMemSetAccess(t.mapped, kBytes, &access, 1), "cuMemSetAccess");
  };
  const auto unmap = [&t] { check(cuMemUnmap(t.mapped, kBytes), "cuMemUnmap"); };
  const auto unreserve = [&t] {
    check(cuMemRelease(t.piece), "cuMemRelease");
    check(cuMemAddressFree(t.mapped, kBytes), "cuMemAddressFree");
  };
  const auto load = [&t] { check(cuModuleLoadData(&t.module, kModule), "cuModuleLoadData"); };
  const auto unload = [&t] { check(cuModuleUnload(t.module), "cuModuleUnload"); };
  const auto make_array = [&t] {
    struct {
      size_t width, height;
      int format;
      unsigned channels;
    } const of_floats{1024, 1024, 0x20, 1};
    check(called<CUresult(void**, const void*)>("cuArrayCreate_v2")(&t.array, &of_floats),
          "cuArrayCreate");
  };
  const auto end_array = [&t] {
    check(called<CUresult(void*)>("cuArrayDestroy")(t.array), "cuArrayDestroy");
  };
  const auto make_mipmaps = [&t] {
    struct {
      size_t width, height, depth;
      int format;
      unsigned channels, flags;
    } const of_floats{1024, 1024, 0, 0x20, 1, 0};
    check(called<CUresult(void**, const void*, unsigned)>("cuMipmappedArrayCreate")(&t.mipmaps,
                                                                                    &of_floats, 2),
          "cuMipmappedArrayCreate");
  };
  const auto end_mipmaps = [&t] {
    check(called<CUresult(void*)>("cuMipmappedArrayDestroy")(t.mipmaps), "cuMipmappedArrayDestroy");
  };
  const auto allocate_managed = [&t] {
    constexpr unsigned kGlobal = 1;
    check(called<CUresult(CUdeviceptr*, size_t, unsigned)>("cuMemAllocManaged")(&t.memory, kBytes,
                                                                                kGlobal),
          "cuMemAllocManaged");
  };
  const auto load_library = [&t] {
    using Load = CUresult(void**, const void*, void*, void*, unsigned, void*, void*, unsigned);
    check(called<Load>("cuLibraryLoadData")(&t.library, kModule, nullptr, nullptr, 0, nullptr,
                                            nullptr, 0),
          "cuLibraryLoadData");
    void* module = nullptr;
    check(called<CUresult(void**, void*)>("cuLibraryGetModule")(&module, t.library),
          "cuLibraryGetModule");
    check(called<CUresult(void**, void*, const char*)>("cuLibraryGetKernel")(&t.kernel, t.library,
                                                                             "nothing"),
          "cuLibraryGetKernel");
  };
  const auto first_launch = [&t] {  // a kernel may be loaded only when it is launched
    launch(static_cast<CUfunction>(t.kernel), {1, 1}, t.stream);
  };
  const auto unload_library = [&t] {
    check(called<CUresult(void*)>("cuLibraryUnload")(t.library), "cuLibraryUnload");
  };
  const auto deepen = [] {
    size_t bytes = 0;
    check(called<CUresult(size_t*, int)>("cuCtxGetLimit")(&bytes, 0), "cuCtxGetLimit");
    check(called<CUresult(int, size_t)>("cuCtxSetLimit")(0, bytes + 1024), "cuCtxSetLimit");
  };
  const auto make_pool = [&t, &session] {
    struct {
      int kind, handles, place, device;
      void* security;
      size_t most;
      unsigned char reserved[56];
    } const properties{1, 0, 1, session.device(), nullptr, 0, {}};
    check(called<CUresult(void**, const void*)>("cuMemPoolCreate")(&t.pool, &properties),
          "cuMemPoolCreate");
  };
  const auto end_pool = [&t] {
    check(called<CUresult(void*)>("cuMemPoolDestroy")(t.pool), "cuMemPoolDestroy");
  };
  const auto trim_pool = [&t] {
    check(called<CUresult(void*, size_t)>("cuMemPoolTrimTo")(t.pool, 0), "cuMemPoolTrimTo");
  };
  const auto reset_l2 = [] {
    check(called<CUresult()>("cuCtxResetPersistingL2Cache")(), "cuCtxResetPersistingL2Cache");
  };
  const auto stop_profiler = [] {
    check(called<CUresult()>("cuProfilerStop")(), "cuProfilerStop");
  };
  const auto make_graph = [&t] { check(cuGraphCreate(&t.graph, 0), "cuGraphCreate"); };
  const auto instantiate = [&t] {
    check(cuGraphInstantiateWithFlags(&t.exec, t.graph, 0), "cuGraphInstantiateWithFlags");
  };
  const auto end_exec = [&t] { check(cuGraphExecDestroy(t.exec), "cuGraphExecDestroy"); };
  const auto end_graph = [&t] { check(cuGraphDestroy(t.graph), "cuGraphDestroy"); };
  const auto make_stream = [&t] {
    check(cuStreamCreate(&t.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  };
  const auto end_stream = [&t] { check(cuStreamDestroy_v2(t.stream), "cuStreamDestroy"); };
  const auto record = [&t, place] {
    check(cuEventCreate(&t.event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    check(cuEventRecord(t.event, place.stream), "cuEventRecord");
  };
  const auto end_event = [&t] { check(cuEventDestroy_v2(t.event), "cuEventDestroy"); };
  return {
      {"cuCtxSynchronize", nothing, [] { check(cuCtxSynchronize(), "cuCtxSynchronize"); }, nothing},
      {"cuCtxSynchronize, the stream's context", nothing,
       [place] {
         const Current current(place.context);
         check(cuCtxSynchronize(), "cuCtxSynchronize");
       },
       nothing},
      {"cuStreamSynchronize", nothing,
       [place] { check(cuStreamSynchronize(place.stream), "cuStreamSynchronize"); }, nothing},
      {"cuStreamQuery until it is empty", nothing,
       [place] {
         while (cuStreamQuery(place.stream) == CUDA_ERROR_NOT_READY) {
         }
       },
       nothing},
      {"cuEventRecord, cuEventSynchronize", nothing,
       [&t, record] {
         record();
         check(cuEventSynchronize(t.event), "cuEventSynchronize");
       },
       end_event},
      {"cuStreamWaitEvent, cuStreamSynchronize of the legacy stream", nothing,
       [&t, record] {
         record();
         check(cuStreamWaitEvent(nullptr, t.event, 0), "cuStreamWaitEvent");
         check(cuStreamSynchronize(nullptr), "cuStreamSynchronize");
       },
       end_event},
      {"cuMemAlloc", nothing, allocate, release},
      {"cuMemFree", allocate, release, nothing},
      {"cuMemHostAlloc", nothing, pin, unpin},
      {"cuMemFreeHost", pin, unpin, nothing},
      {"cuMemHostRegister", nothing, enroll, [strike, drop] { strike(), drop(); }},
      {"cuMemHostUnregister", enroll, strike, drop},
      {"cuMemUnmap", map, unmap, unreserve},
      {"cuModuleLoadData", nothing, load, unload},
      {"cuModuleUnload", load, unload, nothing},
      {"cuArrayDestroy", make_array, end_array, nothing},
      {"cuMipmappedArrayDestroy", make_mipmaps, end_mipmaps, nothing},
      {"cuMemAllocManaged", nothing, allocate_managed, release},
      {"cuMemFree of managed memory", allocate_managed, release, nothing},
      {"cuLibraryUnload", load_library, unload_library, nothing},
      {"cuLaunchKernel of a new kernel in another stream", [=] { load_library(), make_stream(); },
       first_launch, [=] { end_stream(), unload_library(); }},
      {"cuCtxSetLimit of the stack", nothing, deepen, nothing},
      {"cuCtxResetPersistingL2Cache", nothing, reset_l2, nothing},
      {"cuProfilerStop", nothing, stop_profiler, nothing},
      {"cuMemPoolTrimTo", make_pool, trim_pool, end_pool},
      {"cuMemPoolDestroy", make_pool, end_pool, nothing},
      {"cuGraphInstantiate", make_graph, instantiate, [=] { end_exec(), end_graph(); }},
      {"cuGraphExecDestroy", [=] { make_graph(), instantiate(); }, end_exec, end_graph},
      {"cuStreamDestroy of another", make_stream, end_stream, nothing},
  };
}

int run(const Settings& s) {
  const GpuSession session(s.device, CU_CTX_SCHED_SPIN);
  const GpuPart part(session, 16), other(session, 32);
  CUcontext primary = nullptr;
  check(cuCtxGetCurrent(&primary), "cuCtxGetCurrent");
  const Place places[] = {{"whole GPU", primary, session.new_stream()},
                          {"16 SMs", part.context, part.stream}};
  Work work(session);
  Things things;
  CUevent after = nullptr;
  check(cuEventCreate(&after, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  const CUdeviceptr word = session.new_zeroed(sizeof(uint32_t));
  const CUstream waiting = session.new_stream();
  for (const Place& place : places) {
    const CUgraphExec own = work.graph(place.stream), foreign = work.graph(other.stream);
    CUstream blocking = nullptr;
    {
      const Current current(place.context);
      check(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), "cuStreamCreate");
    }
    const auto launch = [&](CUgraphExec exec) {
      check(cuGraphLaunch(exec, place.stream), "cuGraphLaunch");
    };
    const std::pair<const char*, std::function<void()>> kinds[] = {
        {"kernels", [&] { work.kernels(place.stream); }},
        {"a copy", [&] { work.copy(place.stream); }},
        {"a fill", [&] { work.fill(place.stream); }},
        {"a host function", [&] { work.host_function(place.stream); }},
        {"a wait for a value", [&] { work.held_by_value(place.stream); }},
        {"a graph", [&] { launch(own); }},
        {"a graph that was captured in 32 other SMs", [&] { launch(foreign); }},
        {"a graph behind a kernel", [&] { work.spin(place.stream), launch(own); }},
        {"a graph and an event behind it",
         [&] { launch(own), check(cuEventRecord(after, place.stream), "cuEventRecord"); }},
        {"a graph and a wait for an event behind it",
         [&] {
           launch(own), check(cuStreamWaitEvent(place.stream, after, 0), "cuStreamWaitEvent");
         }},
        {"a graph and a wait for it in a stream of the whole GPU",
         [&] {
           launch(own), check(cuEventRecord(after, place.stream), "cuEventRecord");
           check(cuStreamWaitEvent(waiting, after, 0), "cuStreamWaitEvent");
         }},
        {"a graph and a value written behind it",
         [&] {
           launch(own),
               check(cuStreamWriteValue32_v2(place.stream, word, 1, 0), "cuStreamWriteValue32");
         }},
        {"a graph, launched with the stream's context current",
         [&] {
           const Current current(place.context);
           launch(own);
         }},
        {"a graph in a blocking stream that was made with the context current",
         [&] { check(cuGraphLaunch(own, blocking), "cuGraphLaunch"); }},
        {"a kernel and a graph before it", [&] { launch(own), work.spin(place.stream); }},
    };
    for (const auto& [kind, start] : kinds) {
      JsonLine line;
      line.add("work", kind).add("in", place.name).add("times", s.times);
      for (const Call& call : calls_of(things, session, place)) {
        uint64_t waited = 0;
        for (uint64_t i = 0; i < s.times; ++i) {
          call.prepare();
          check(cuCtxSynchronize(), "cuCtxSynchronize");
          work.reset();
          start();
          call.call();
          waited += work.has_ended() ? 1 : 0;
          while (!work.has_ended()) sleep_until_ns(now_ns() + 1'000'000);
          check(cuStreamSynchronize(place.stream), "cuStreamSynchronize");
          call.clean();
        }
        line.add(call.name, waited);
      }
      line.print();
    }
  }
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("waits", "which calls of the host wait for work in a part of the GPU.")
