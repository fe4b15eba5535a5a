// SPDX-License-Identifier: Apache-2.0
// hostile: what is hard for a library that moves streams, each in a way of its own (--what):
//   streams   hundreds of streams are made, used and destroyed with work in them
//   resets    the primary context is reset in the middle of the work, and taken anew
//   forks     children come and go while another thread launches
//   functions host functions and nothing else, in order in each stream
//   graphs    a captured graph is launched again and again, and updated in between
//   built     the same, beside a graph with a kernel that was added by hand
//   own       a context of the program's own, and no primary one
//   joins     streams join the capture of a stream in a context of the program's own
//   deep      streams, and in the middle of the rounds a library is loaded with RTLD_DEEPBIND
// Each kernel adds a known number, so that none may be lost or run twice.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "intercept/cuda/kernel_math.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"
#include "tests/workloads/common/kernels.ptx.h"
#include "tests/workloads/common/random.h"
#include "tests/workloads/common/verdict.h"

namespace gpushare::workloads {
namespace {

constexpr LaunchShape kShape{4, 64};
constexpr uint32_t kUnits = 20;

struct Settings {
  uint64_t rounds = 100, most = 300, pause_us = 0, linger_ms = 0, seed = 1, device = 0;
  std::string what = "streams";

  explicit Settings(Flags& flags) {
    flags.add("--what", &what,
              "streams, resets, forks, functions, graphs, built, own, joins or deep", "--rounds",
              &rounds, "of it", "--most", &most, "streams or launches of a round", "--pause-us",
              &pause_us, "between rounds", "--linger-ms", &linger_ms, "when all has run", "--seed",
              &seed, "of what is random");
    flags.parse(&device);
    if (most == 0 || most > 10'000) flags.fail("--most must be 1 to 10000");
  }
};

// The parameters of a kernel that adds a known number to `sum`.
struct Addition {
  CUdeviceptr sum;
  uint32_t seed;
  uint32_t units = kUnits;
  uint32_t mul = kernels::kRound.mul, add = kernels::kRound.add;
  kernels::Affine undo =
      kernels::kRound.times(uint64_t{kUnits} * kernels::kRoundsPerUnit).inverse();
  void* pointers[8] = {&sum, &seed, &units, &mul, &add, &undo.mul, &undo.add, nullptr};

  Addition(CUdeviceptr to, uint32_t number) : sum(to), seed(number) {}
  Addition(const Addition&) = delete;
  Addition& operator=(const Addition&) = delete;
  uint32_t value() const { return kernels::sum_of_starts(seed, 0, kShape.total_threads()); }
};

// A context with the kernel, and what was added in it.
class Adder {
 public:
  Adder() {
    check(cuModuleLoadData(&module_, kKernels), "cuModuleLoadData");
    check(cuModuleGetFunction(&spin_, module_, "gs_spin"), "cuModuleGetFunction");
    check(cuMemAlloc_v2(&sum_, sizeof(uint32_t)), "cuMemAlloc_v2");
    check(cuMemsetD8_v2(sum_, 0, sizeof(uint32_t)), "cuMemsetD8_v2");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  CUfunction kernel() const { return spin_; }
  CUdeviceptr sum() const { return sum_; }
  void launch_in(CUstream stream) {
    Addition one(sum_, next_++);
    check(cuLaunchKernel(spin_, kShape.blocks, 1, 1, kShape.threads, 1, 1, 0, stream, one.pointers,
                         nullptr),
          "cuLaunchKernel");
    expected_ += one.value();
  }
  CUDA_KERNEL_NODE_PARAMS_v2 node(Addition& one) const {
    return kernel_node(spin_, kShape, one.pointers);
  }
  void expect(uint32_t more) { expected_ += more; }
  uint32_t expected() const { return expected_; }
  uint32_t found() const {
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    uint32_t value = 0;
    check(cuMemcpyDtoH_v2(&value, sum_, sizeof value), "cuMemcpyDtoH_v2");
    return value;
  }

 private:
  CUmodule module_ = nullptr;
  CUfunction spin_ = nullptr;
  CUdeviceptr sum_ = 0;
  uint32_t next_ = 1, expected_ = 0;
};

struct Sums {
  uint32_t expected = 0, found = 0;
};

CUstream new_stream(Random& random) {
  CUstream stream = nullptr;
  check(
      cuStreamCreate(&stream, random.next() % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING),
      "cuStreamCreate");
  return stream;
}

CUdevice first_device(const Settings& s) {
  CUdevice device = 0;
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, static_cast<int>(s.device)), "cuDeviceGet");
  return device;
}

void retain(CUdevice device) {
  CUcontext context = nullptr;
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

Sums of(const Adder& adder) { return {adder.expected(), adder.found()}; }

void pause(const Settings& s) {
  if (s.pause_us != 0) sleep_until_ns(now_ns() + s.pause_us * 1000);
}

void load_deeply() {
  if (::dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) == nullptr) die(::dlerror());
  if (::dlopen("libthere-is-none.so", RTLD_NOW | RTLD_DEEPBIND) != nullptr) die("it is there");
  const char* const why = ::dlerror();
  if (why == nullptr || std::string_view(why).find("there-is-none") == std::string_view::npos)
    die("no reason is given");
}

Sums streams(const Settings& s) {
  retain(first_device(s));
  Random random(s.seed);
  Adder adder;
  std::deque<CUstream> there;
  for (uint64_t round = 0; round < s.rounds; ++round) {
    if (round == s.rounds / 2 && s.what == "deep") load_deeply();
    for (uint64_t i = random.next() % s.most; i > 0; --i) {
      if (there.size() < s.most) there.push_back(new_stream(random));
      adder.launch_in(there[random.next() % there.size()]);
      if (random.next() % 16 == 0) adder.launch_in(nullptr);
      if (random.next() % 16 == 0) adder.launch_in(GS_CU_STREAM_PER_THREAD);
    }
    for (uint64_t i = there.empty() ? 0 : random.next() % there.size(); i > 0; --i) {
      std::swap(there.front(), there[random.next() % there.size()]);
      check(cuStreamDestroy_v2(there.front()), "cuStreamDestroy_v2");
      there.pop_front();
    }
    if (random.next() % 4 == 0) check(cuCtxSynchronize(), "cuCtxSynchronize");
    pause(s);
  }
  return of(adder);
}

// What was in line when the context was reset is lost; what comes after must not be.
Sums resets(const Settings& s) {
  const CUdevice device = first_device(s);
  Random random(s.seed);
  Sums sums;
  for (uint64_t round = 0; round < s.rounds; ++round) {
    retain(device);
    Adder adder;
    std::vector<CUstream> there;
    for (uint64_t i = 0; i < 8; ++i) there.push_back(new_stream(random));
    const auto launch_some = [&] {
      for (uint64_t i = random.next() % s.most; i > 0; --i)
        adder.launch_in(there[random.next() % there.size()]);
      adder.launch_in(nullptr);
    };
    launch_some();
    const Sums one = of(adder);
    sums.expected += one.expected;
    sums.found += one.found;
    launch_some();
    check(cuDevicePrimaryCtxReset_v2(device), "cuDevicePrimaryCtxReset_v2");
    pause(s);
  }
  return sums;
}

Sums forks(const Settings& s) {
  retain(first_device(s));
  CUcontext context = nullptr;
  check(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  Random random(s.seed);
  Adder adder;
  const std::vector<CUstream> there{new_stream(random), new_stream(random), nullptr};
  std::atomic<bool> is_over{false};
  std::thread launches([&] {
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (uint64_t i = 0; !is_over; ++i) {
      adder.launch_in(there[i % there.size()]);
      if (i % 64 == 0) check(cuStreamSynchronize(there[0]), "cuStreamSynchronize");
    }
  });
  uint64_t failed = 0;
  for (uint64_t round = 0; round < s.rounds; ++round) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(7);
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 7)
      ++failed;
    pause(s);
  }
  is_over = true;
  launches.join();
  if (failed != 0) die("a child did not end as it should");
  return of(adder);
}

struct Turn {
  std::atomic<uint64_t>* done;
  uint64_t number;
  std::atomic<uint64_t>* early;
};

void take_turn(void* data) {
  const Turn& turn = *static_cast<const Turn*>(data);
  if (turn.done->fetch_add(1) != turn.number) turn.early->fetch_add(1);
}

Sums functions(const Settings& s) {
  retain(first_device(s));
  Random random(s.seed);
  constexpr size_t kStreams = 4;
  std::atomic<uint64_t> done[kStreams] = {}, early{0};
  CUstream there[kStreams];
  for (CUstream& stream : there) stream = new_stream(random);
  std::deque<Turn> turns;
  uint64_t put[kStreams] = {};
  for (uint64_t round = 0; round < s.rounds; ++round) {
    for (uint64_t i = random.next() % s.most; i > 0; --i) {
      const size_t at = random.next() % kStreams;
      turns.push_back({&done[at], put[at]++, &early});
      check(cuLaunchHostFunc(there[at], &take_turn, &turns.back()), "cuLaunchHostFunc");
    }
    if (random.next() % 4 == 0) check(cuCtxSynchronize(), "cuCtxSynchronize");
    pause(s);
  }
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  if (early != 0) die("a host function came out of order");
  Sums sums;
  for (size_t i = 0; i < kStreams; ++i) {
    sums.expected += static_cast<uint32_t>(put[i]);
    sums.found += static_cast<uint32_t>(done[i].load());
  }
  return sums;
}

// A graph of a few kernels in a row, the last one in a stream that is made for it before the
// capture or within; returns what one launch of it adds.
uint32_t captured(const Adder& adder, CUstream stream, Random& random, CUgraph* graph) {
  CUstream last = nullptr;
  CUevent fork = nullptr, join = nullptr;
  check(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  check(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  if (random.next() % 2 == 0) last = new_stream(random);
  check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "cuStreamBeginCapture_v2");
  if (last == nullptr) last = new_stream(random);
  uint32_t sum = 0;
  for (int i = 0; i < 3; ++i) {
    Addition one(adder.sum(), static_cast<uint32_t>(random.next()));
    if (i == 2) {
      check(cuEventRecord(fork, stream), "cuEventRecord");
      check(cuStreamWaitEvent(last, fork, 0), "cuStreamWaitEvent");
    }
    check(cuLaunchKernel(adder.kernel(), kShape.blocks, 1, 1, kShape.threads, 1, 1, 0,
                         i == 2 ? last : stream, one.pointers, nullptr),
          "cuLaunchKernel");
    sum += one.value();
  }
  check(cuEventRecord(join, last), "cuEventRecord");
  check(cuStreamWaitEvent(stream, join, 0), "cuStreamWaitEvent");
  check(cuStreamEndCapture(stream, graph), "cuStreamEndCapture");
  check(cuStreamDestroy_v2(last), "cuStreamDestroy_v2");
  for (CUevent event : {fork, join}) check(cuEventDestroy_v2(event), "cuEventDestroy_v2");
  return sum;
}

Sums graphs(const Settings& s, bool is_beside_built) {
  retain(first_device(s));
  Random random(s.seed);
  Adder adder;
  std::vector<CUstream> there;
  for (int i = 0; i < 4; ++i) there.push_back(new_stream(random));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr, by_hand = nullptr;
  uint32_t adds = captured(adder, there[0], random, &graph);
  check(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  check(cuGraphDestroy(graph), "cuGraphDestroy");
  Addition one(adder.sum(), 99);
  if (is_beside_built) {
    check(cuGraphCreate(&graph, 0), "cuGraphCreate");
    CUgraphNode node = nullptr;
    const CUDA_KERNEL_NODE_PARAMS_v2 parameters = adder.node(one);
    check(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &parameters),
          "cuGraphAddKernelNode_v2");
    check(cuGraphInstantiateWithFlags(&by_hand, graph, 0), "cuGraphInstantiateWithFlags");
  }
  for (uint64_t round = 0; round < s.rounds; ++round) {
    for (uint64_t i = random.next() % s.most; i > 0; --i) {
      check(cuGraphLaunch(exec, there[random.next() % there.size()]), "cuGraphLaunch");
      adder.expect(adds);
      if (by_hand == nullptr) continue;
      check(cuGraphLaunch(by_hand, there[random.next() % there.size()]), "cuGraphLaunch");
      adder.expect(one.value());
    }
    const uint32_t next = captured(adder, there[random.next() % there.size()], random, &graph);
    CUgraphExecUpdateResultInfo_v1 result{};
    check(cuGraphExecUpdate_v2(exec, graph, &result), "cuGraphExecUpdate_v2");
    check(cuGraphDestroy(graph), "cuGraphDestroy");
    adds = next;
    pause(s);
  }
  return of(adder);
}

Sums own(const Settings& s) {
  CUcontext context = nullptr;
  check(cuCtxCreate_v2(&context, 0, first_device(s)), "cuCtxCreate_v2");
  Random random(s.seed);
  Adder adder;
  const std::vector<CUstream> there{new_stream(random), nullptr};
  for (uint64_t round = 0; round < s.rounds; ++round) {
    adder.launch_in(there[round % there.size()]);
    pause(s);
  }
  return of(adder);
}

CUevent new_event() {
  CUevent event = nullptr;
  check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  return event;
}

// In half of the rounds there is the primary context alone, so that there are partitions.
Sums joins(const Settings& s) {
  const CUdevice device = first_device(s);
  retain(device);
  CUcontext primary = nullptr, own = nullptr;
  check(cuCtxGetCurrent(&primary), "cuCtxGetCurrent");
  Random random(s.seed);
  Adder adder;
  std::vector<CUstream> there;
  for (int i = 0; i < 4; ++i) there.push_back(new_stream(random));
  const auto launch_some = [&](size_t but_in) {
    for (size_t i = 0; i < there.size(); ++i)
      if (i != but_in) adder.launch_in(there[i]);
  };
  const CUevent joined = new_event();
  for (uint64_t round = 0; round < s.rounds; ++round) {
    launch_some(there.size());
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    pause(s);
  }
  check(cuCtxCreate_v2(&own, 0, device), "cuCtxCreate_v2");
  const CUevent begun = new_event();
  CUstream captures = nullptr;
  check(cuStreamCreate(&captures, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  for (uint64_t round = 0; round < s.rounds; ++round) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    check(cuStreamBeginCapture_v2(captures, CU_STREAM_CAPTURE_MODE_RELAXED),
          "cuStreamBeginCapture_v2");
    check(cuEventRecord(begun, captures), "cuEventRecord");
    check(cuCtxSetCurrent(primary), "cuCtxSetCurrent");
    check(cuStreamWaitEvent(there[0], begun, 0), "cuStreamWaitEvent");
    for (int i = 0; i < 4; ++i) {
      launch_some(0);
      adder.launch_in(there[0]);  // which comes into the graph
      pause(s);
    }
    check(cuEventRecord(joined, there[0]), "cuEventRecord");
    check(cuCtxSetCurrent(own), "cuCtxSetCurrent");
    check(cuStreamWaitEvent(captures, joined, 0), "cuStreamWaitEvent");
    check(cuStreamEndCapture(captures, &graph), "cuStreamEndCapture");
    check(cuCtxSetCurrent(primary), "cuCtxSetCurrent");
    check(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    check(cuGraphLaunch(exec, there[round % there.size()]), "cuGraphLaunch");
    check(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
    check(cuGraphDestroy(graph), "cuGraphDestroy");
    launch_some(there.size());
    check(cuCtxSetCurrent(own), "cuCtxSetCurrent");
  }
  check(cuCtxSetCurrent(primary), "cuCtxSetCurrent");
  return of(adder);
}

int run(const Settings& s) {
  const Sums sums = s.what == "streams"     ? streams(s)
                    : s.what == "deep"      ? streams(s)
                    : s.what == "resets"    ? resets(s)
                    : s.what == "forks"     ? forks(s)
                    : s.what == "functions" ? functions(s)
                    : s.what == "graphs"    ? graphs(s, false)
                    : s.what == "built"     ? graphs(s, true)
                    : s.what == "own"       ? own(s)
                    : s.what == "joins"     ? joins(s)
                                            : (die("--what"), Sums{});
  if (s.linger_ms != 0) {
    JsonLine("hostile", s.what).add("rests", true).print();
    sleep_until_ns(now_ns() + s.linger_ms * 1'000'000);
  }
  JsonLine line("hostile", s.what);
  line.add("rounds", s.rounds);
  return conclude(line, sums.found, sums.found == sums.expected, kKernelsAtFault);
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("hostile", "what is hard for a library that moves streams.")
