// SPDX-License-Identifier: Apache-2.0
// launch_cost: what the shim adds to a launch, in ns, over a driver whose launch does nothing. A
// process for each set of features calls the pointer that it gets by dlsym a million times, with 40
// functions in turn and a wait for the stream after every 200. "graph_ns": what it adds to the
// launch of a graph, one graph again and again, with a wait after every 20. "none" must be the
// driver's own pointer and so cost nothing. "cold_ns" is the same with so much other code and data
// between two launches as fits a core's first caches, as in a real driver's launch, less what that
// alone takes. "announced": with the feature iterations, in a program that announces them; what
// that costs is on a line of its own. "aimless": with the feature iterations, in a program without
// any, as its functions come at random.
#include <dlfcn.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "intercept/api/gpushare.h"
#include "intercept/shim/driver/driver_types.h"
#include "shmctl/shim/host.h"
#include "shmctl/shim/protocol.h"

namespace gpushare {
namespace {

namespace fs = std::filesystem;
using Launch = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, CUstream, void**, void**);

constexpr int kLaunches = 1'000'000;
constexpr int kLaunchesPerWait = 200, kGraphsPerWait = 20;
constexpr int kAnnouncements = 100'000;
constexpr int kRounds = 25;

fs::path build_folder() {
  return fs::read_symlink("/proc/self/exe").parent_path().parent_path().parent_path();
}

// Numbers none of which tells anything about the next one.
uint64_t mixed(uint64_t number) {
  number = (number ^ number >> 32) * 0xD6E8FEB86659FD93;
  number = (number ^ number >> 32) * 0xD6E8FEB86659FD93;
  return number ^ number >> 32;
}

struct Calls {
  Launch launch;
  CUresult (*wait)(CUstream);
  bool is_aimless;

  void make(uintptr_t i) const {
    const uintptr_t which = is_aimless ? mixed(i) : i;
    launch(reinterpret_cast<CUfunction>(0x1000 + which % 40 * 64), 1, 1, 1, 1, 1, 1, 0, nullptr,
           nullptr, nullptr);
    if (i % kLaunchesPerWait == 0) wait(nullptr);
  }
};

double ns_per_launch(const Calls& calls) {
  const auto begin = std::chrono::steady_clock::now();
  for (uintptr_t i = 0; i < kLaunches; ++i) calls.make(i);
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kLaunches;
}

double ns_per_graph(CUresult (*launch)(CUgraphExec, CUstream), CUresult (*wait)(CUstream)) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kLaunches; ++i) {
    launch(reinterpret_cast<CUgraphExec>(0x1000), nullptr);
    if (i % kGraphsPerWait == 0) wait(nullptr);
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kLaunches;
}

// Runs through 32 KiB of code and as much data.
[[gnu::noinline]] void run_elsewhere() {
  static uint64_t data[4096];
  for (std::size_t i = 0; i < std::size(data); i += 8) data[i] = data[i] + 1;
  asm volatile(".rept 8192; addl $1, %%eax; nop; .endr" ::: "eax", "cc", "memory");
}

// The median over many short turns of a turn with the calls less one without them.
double cold_ns(const Calls& calls) {
  constexpr uintptr_t kTurn = 100, kTurns = 4'000;
  uintptr_t next = 0;
  const auto turn = [&](bool launches) {
    const auto begin = std::chrono::steady_clock::now();
    for (uintptr_t i = 0; i < kTurn; ++i) {
      run_elsewhere();
      if (launches) calls.make(++next);
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    return took.count() / kTurn;
  };
  std::vector<double> more;
  while (more.size() < kTurns) {
    const double alone = turn(false);
    more.push_back(turn(true) - alone);
  }
  std::ranges::nth_element(more, more.begin() + kTurns / 2);
  return more[kTurns / 2];
}

double ns_per_announcement() {
  const auto begin = std::chrono::steady_clock::now();
  gpushare_iteration one = GPUSHARE_ITERATION;
  for (int i = 0; i < kAnnouncements; ++i) {
    gpushare_begin(&one, GPUSHARE_UNKNOWN);
    gpushare_end(&one);
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kAnnouncements;
}

// In the child: prints the best of a few rounds, which was disturbed least.
int measure(const char* name) {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* function = library == nullptr ? nullptr : ::dlsym(library, "cuLaunchKernel");
  void* wait = library == nullptr ? nullptr : ::dlsym(library, "cuStreamSynchronize");
  void* graph = library == nullptr ? nullptr : ::dlsym(library, "cuGraphLaunch");
  if (function == nullptr || wait == nullptr || graph == nullptr) return 1;
  const Calls calls{reinterpret_cast<Launch>(function),
                    reinterpret_cast<CUresult (*)(CUstream)>(wait),
                    std::strcmp(name, "aimless") == 0};
  Dl_info owner{};
  ::dladdr(function, &owner);
  double best = 1e9, best_graph = 1e9, announcement = 1e9;
  const bool is_announcing = std::strcmp(name, "announced") == 0 ||
                             std::strcmp(name, "native") == 0 || std::strcmp(name, "none") == 0;
  for (int i = 0; i < kRounds && is_announcing; ++i)
    announcement = std::min(announcement, ns_per_announcement());
  for (int i = 0; i < kRounds; ++i) {
    best = std::min(best, ns_per_launch(calls));
  }
  const auto launch_graph = reinterpret_cast<CUresult (*)(CUgraphExec, CUstream)>(graph);
  for (int i = 0; i < kRounds; ++i)
    best_graph = std::min(best_graph, ns_per_graph(launch_graph, calls.wait));
  fmt::print(
      "{{\"shim\":\"{}\",\"ns\":{:.2f},\"cold_ns\":{:.2f},\"graph_ns\":{:.2f},\"pointer\":\"{}\"}}"
      "\n",
      name, best, cold_ns(calls), best_graph, fs::path(owner.dli_fname).filename().string());
  if (is_announcing)
    fmt::print("{{\"shim\":\"{}\",\"begin_and_end_ns\":{:.2f}}}\n", name, announcement);
  return 0;
}

struct Way {
  const char* name;
  bool is_preloaded;
  uint32_t features;
};

int run(const Way& way, const std::string& folder) {
  const std::string socket = folder + "/shim.sock";
  auto host = ShimHost::listen(socket, [&](const ProcessId&, uid_t) {
    return ShimRequest{.features = way.features, .gpus = {}};
  });
  if (!host) return 1;
  ::setenv("LD_LIBRARY_PATH", (build_folder() / "lib/fake").c_str(), 1);
  ::setenv(kShimSocketVariable, socket.c_str(), 1);
  if (way.is_preloaded) ::setenv("LD_PRELOAD", (build_folder() / "lib/libgpushare.so").c_str(), 1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "launch_cost", way.name, nullptr);
    ::_exit(127);
  }
  ::unsetenv("LD_PRELOAD");
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    pollfd waiting{(*host)->fd(), POLLIN, 0};
    ::poll(&waiting, 1, 20);
    (*host)->serve();
    (*host)->beat(MonotonicClock().now());
  }
  return status;
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) {
  using namespace gpushare;
  if (argc == 2) return measure(argv[1]);
  std::string folder = (fs::temp_directory_path() / "gs-cost-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  int failed = 0;
  for (const Way& way :
       {Way{"native", false, 0}, Way{"none", true, 0}, Way{"gate", true, kShimGate},
        Way{"partitions", true, kShimPartitions}, Way{"iterations", true, kShimIterations},
        Way{"announced", true, kShimIterations}, Way{"aimless", true, kShimIterations},
        Way{"gate and partitions", true, kShimGate | kShimPartitions},
        Way{"all", true, kShimFeatures}})
    failed |= run(way, folder);
  fs::remove_all(folder);
  return failed == 0 ? 0 : 1;
}
