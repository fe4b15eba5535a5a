// SPDX-License-Identifier: Apache-2.0
// A program that reaches the driver in every way there is, and prints what it got. It runs with and
// without the shim preloaded, over the fake driver. Exit status 0: all was as expected; otherwise a
// line on standard error tells what was not. One binary is linked to libcuda.so.1 (GS_LINKED).
//
//   probe WAY COUNT   goes that way, with COUNT launches; see kWays
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "intercept/api/gpushare.h"
#include "tests/intercept/shim/driver/fake_driver.h"

namespace gpushare::test {
namespace {

using Launch = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, CUstream, void**, void**);
using GetProcAddress = CUresult (*)(const char*, void**, int, uint64_t);
using GetProcAddress2 = CUresult (*)(const char*, void**, int, uint64_t,
                                     CUdriverProcAddressQueryResult*);

constexpr int kApi = 13000;

void fail(std::string_view what) {
  fmt::print(stderr, "probe: {}\n", what);
  std::_Exit(1);
}
// Safe in a signal handler, as it allocates nothing.
void expect(bool is_so, std::string_view what) {
  if (!is_so) fail(what);
}

struct Named {
  const char* base;
  const char* symbol;
  int since;
  bool is_variant;
  bool is_lookup;
};
#define GS_HOOK(kind, base, symbol, since, parameters) \
  {#base, #symbol, since, false, std::string_view(#kind) == "Lookup"},
#define GS_HOOK_VARIANT(kind, base, symbol, since, parameters) {#base, #symbol, since, true, false},
constexpr Named kAll[] = {
#include "intercept/shim/driver/hooks.def"
};

void* library() {
  void* handle = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail(::dlerror());
  return handle;
}

std::string library_of(void* function) {
  Dl_info info{};
  if (::dladdr(function, &info) == 0) return "nothing";
  const std::string path = info.dli_fname;
  return path.substr(path.rfind('/') + 1);
}

void launch(Launch function, int count) {
  expect(function != nullptr, "no function");
  for (int i = 0; i < count; ++i) {
    errno = 77;
    const CUresult result = function(nullptr, 1, 2, 3, 4, 5, 6, 7, nullptr, nullptr, nullptr);
    expect(result == answer_of(shim::kHook_cuLaunchKernel), "the launch went elsewhere");
    expect(errno == 77, "errno was changed");
  }
}

Launch by_dlsym() { return reinterpret_cast<Launch>(::dlsym(library(), "cuLaunchKernel")); }

GetProcAddress2 lookup() {
  return reinterpret_cast<GetProcAddress2>(::dlsym(library(), "cuGetProcAddress_v2"));
}

void* by_lookup(const char* base, int version, uint64_t flags) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  expect(lookup()(base, &function, version, flags, &status) == CUDA_SUCCESS, "cuGetProcAddress_v2");
  expect((function != nullptr) == (status == CU_GET_PROC_ADDRESS_SUCCESS), "status");
  return function;
}

// --- ways in ------------------------------------------------------------------------------------

void way_dlsym(int count) { launch(by_dlsym(), count); }

void way_dlvsym(int count) {
  // The driver's symbols have no versions, so this finds none, with the shim and without.
  expect(::dlvsym(library(), "cuLaunchKernel", "CUDA_1.0") == nullptr, "dlvsym found a version");
  void* const real = ::dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_2.2.5");
  expect(real != nullptr, "dlvsym finds nothing any more");
  launch(by_dlsym(), count);
}

void way_default(int count) {
  expect(::dlsym(RTLD_DEFAULT, "cuLaunchKernel") == nullptr, "found before the driver is loaded");
  expect(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != nullptr, "dlopen");
  launch(reinterpret_cast<Launch>(::dlsym(RTLD_DEFAULT, "cuLaunchKernel")), count);
  launch(reinterpret_cast<Launch>(::dlsym(::dlopen(nullptr, RTLD_NOW), "cuLaunchKernel")), count);
}

void way_lookup(int count) {
  launch(reinterpret_cast<Launch>(by_lookup("cuLaunchKernel", kApi, 0)), count);
  const auto old = reinterpret_cast<GetProcAddress>(::dlsym(library(), "cuGetProcAddress"));
  void* function = nullptr;
  expect(old("cuLaunchKernel", &function, kApi, 0) == CUDA_SUCCESS, "cuGetProcAddress");
  launch(reinterpret_cast<Launch>(function), count);
  expect(old("cuNothing", &function, kApi, 0) == CUDA_ERROR_NOT_FOUND, "found cuNothing");
}

// As a CUDA runtime that is linked into a program does it: it takes one symbol from the library,
// and everything else, also cuGetProcAddress itself, by cuGetProcAddress.
void way_runtime(int count) {
  const auto first = reinterpret_cast<GetProcAddress>(::dlsym(library(), "cuGetProcAddress"));
  void* second = nullptr;
  expect(first("cuGetProcAddress", &second, 12000, 0) == CUDA_SUCCESS, "cuGetProcAddress");
  void* function = nullptr;
  const auto lookup2 = reinterpret_cast<GetProcAddress2>(second);
  expect(lookup2("cuLaunchKernel", &function, 12000, 0, nullptr) == CUDA_SUCCESS, "by the second");
  launch(reinterpret_cast<Launch>(function), count);
}

#ifdef GS_LINKED
void way_direct(int count) { launch(&cuLaunchKernel, count); }
#endif

// --- which MPS server the driver is told -----------------------------------------------------

void tell_pipe() {
  const auto pipe = reinterpret_cast<const char* (*)()>(::dlsym(library(), "gs_pipe_at_init"));
  fmt::print("{}\n", pipe());
}

// Calls cuInit alone, as programs that load the driver themselves begin.
void way_init(int) {
  reinterpret_cast<CUresult (*)(unsigned)>(::dlsym(library(), "cuInit"))(0);
  tell_pipe();
}

#ifdef GS_LINKED
void way_init_direct(int) {
  ::cuInit(0);
  tell_pipe();
}
#endif

// A child that starts over, with another agent's socket in its environment or none.
void way_init_child(int) {
  way_init(0);
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    if (const char* other = std::getenv("OTHER_SOCKET")) ::setenv("GPUSHARE_SHIM_SOCKET", other, 1);
    ::execl("/proc/self/exe", "probe", "init", "1", nullptr);
    std::_Exit(1);
  }
  int status = -1;
  expect(::waitpid(child, &status, 0) == child && status == 0, "the child failed");
}

int status_of(pid_t child) {
  int status = -1;
  expect(::waitpid(child, &status, 0) == child, "waitpid");
  return status;
}

// Announces an iteration before it looks for the driver; its streams are hooked all the same.
void way_announced(int count) {
  gpushare_iteration one = GPUSHARE_ITERATION;
  expect(gpushare_begin(&one, GPUSHARE_UNKNOWN) == GPUSHARE_OK, "not attached");
  launch(by_dlsym(), count);
  expect(library_of(::dlsym(library(), "cuStreamCreate")) == "libgpushare.so", "not hooked");
  expect(gpushare_end(&one) == GPUSHARE_OK, "the end was lost");
}

// One thread announces for ever, and waits when the agent holds it; meanwhile children start,
// announce and launch.
void way_held(int count) {
  const Launch function = by_dlsym();
  std::thread([] {
    while (true) {
      gpushare_iteration one = GPUSHARE_ITERATION;
      gpushare_begin(&one, GPUSHARE_UNKNOWN);
      gpushare_end(&one);
      ::usleep(1000);
    }
  }).detach();
  for (int i = 0; i < count; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int round = 0; round < 3; ++round) {
        gpushare_iteration one = GPUSHARE_ITERATION;
        expect(gpushare_begin(&one, GPUSHARE_UNKNOWN) == GPUSHARE_OK, "a child is not attached");
        launch(function, 1);
        expect(gpushare_end(&one) == GPUSHARE_OK, "the end was lost");
      }
      std::_Exit(0);
    }
    expect(status_of(child) == 0, "a child failed");
    ::usleep(1000);
  }
  std::_Exit(0);
}

// --- every entry of hooks.def by every way, and which library answers
// -------------------------------------

void way_every(int) {
  std::map<std::string, int> owners;
  for (int i = 0; i < shim::kHookCount; ++i) {
    const Named& named = kAll[i];
    void* const function = ::dlsym(library(), named.symbol);
    expect(function != nullptr, fmt::format("dlsym {}", named.symbol));
    ++owners[library_of(function)];
    const uint64_t flags = named.is_variant ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                            : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    void* const same = by_lookup(named.base, named.since, flags);
    expect(same != nullptr, fmt::format("cuGetProcAddress {}", named.symbol));
    expect(library_of(same) == library_of(function), fmt::format("two owners: {}", named.symbol));
    ++owners[library_of(same)];
    if (named.is_lookup) continue;
    // None of them looks at its arguments, and each takes at most eleven words.
    using Any = CUresult (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                             uint64_t, uint64_t, uint64_t, uint64_t);
    for (void* each : {function, same})
      expect(reinterpret_cast<Any>(each)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) == answer_of(i),
             fmt::format("{} is another function", named.symbol));
  }
  for (const auto& [name, count] : owners) fmt::print("{} {}\n", name, count);
}

// --- what a program may do ----------------------------------------------------------------------

void way_versions(int) {
  expect(by_lookup("cuLaunchKernel", 3999, 0) == nullptr, "a version that is too old");
  expect(by_lookup("cuNothing", kApi, 0) == nullptr, "an unknown name");
  void* const future = by_lookup("cuLaunchKernel", kFuture, 0);
  expect(library_of(future) == "libcuda.so.1", "an unknown version of a known function is wrapped");
  expect(library_of(by_lookup("cuInit", kApi, 0)) == "libcuda.so.1", "cuInit is not ours");
  expect(library_of(::dlsym(library(), "cuInit")) == "libcuda.so.1", "cuInit is not ours");
  expect(::dlsym(library(), "cuNothing") == nullptr, "dlsym cuNothing");
  expect(::dlerror() != nullptr, "dlerror says nothing");
}

void way_threads(int count) {
  const Launch function = by_dlsym();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { launch(function, count); });
  for (std::thread& thread : threads) thread.join();
}

void way_racing(int count) {
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      while (!go.load()) {
      }
      launch(by_dlsym(), count);
    });
  go.store(true);
  for (std::thread& thread : threads) thread.join();
}

void way_fork(int count) {
  const Launch function = by_dlsym();
  launch(function, count);
  const pid_t child = ::fork();
  if (child == 0) {
    launch(function, 2 * count);
    ::execl("/proc/self/exe", "probe", "dlsym", std::to_string(3 * count).c_str(), nullptr);
    std::_Exit(1);
  }
  expect(status_of(child) == 0, "the child failed");
  launch(function, count);
}

void way_dlclose(int count) {
  for (int i = 0; i < count; ++i) {
    void* const handle = library();
    const auto function = reinterpret_cast<Launch>(::dlsym(handle, "cuLaunchKernel"));
    launch(function, 1);
    ::dlclose(handle);
  }
}

std::atomic<int> signals{0};
Launch in_handler = nullptr;
void on_signal(int) {
  const int saved = errno;
  launch(in_handler, 1);
  ++signals;
  errno = saved;
}

void way_signal(int count) {
  in_handler = by_dlsym();
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 500}, {0, 500}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  while (signals < count) launch(in_handler, 1);
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) != -1 ? 1 : 0;
  return count;
}

// What the process shows of the shim.
void way_traces(int) {
  const int before = open_descriptors();
  launch(by_dlsym(), 1);
  const int ours = open_descriptors() - before;
  std::ifstream maps("/proc/self/maps");
  int pages = 0;
  for (std::string line; std::getline(maps, line);)
    pages += line.find("gpushare-shim") != std::string::npos ? 1 : 0;
  fmt::print("pages {} descriptors {}\n", pages, ours);
}

// Launches until it is killed or has made so many, with a pause after each.
void way_slow(int count) {
  const Launch function = by_dlsym();
  for (int i = 0; i < count; ++i) {
    launch(function, 1);
    ::usleep(1000);
  }
}

// Launches as way_slow(), after it has put files of its own in the place of all descriptors that it
// does not know. At its end nobody else has written into them.
void way_slow_among_own_files(int count) {
  const Launch function = by_dlsym();
  launch(function, 1);  // attached by now
  const int file = static_cast<int>(::syscall(SYS_memfd_create, "own", 0));
  for (int other = 3; other < 2048; ++other)
    if (other != file && ::fcntl(other, F_GETFD) >= 0) ::dup2(file, other);
  way_slow(count);
  expect(::lseek(file, 0, SEEK_END) == 0, "somebody wrote into a file of the program's");
}

// Launches, and stays at its exit until it is told to go on, after the shim has noticed the exit:
// what was registered first runs last. It launches once more and stays again.
std::atomic<int> told{0};
Launch at_exit = nullptr;
void stay_until_told() {
  while (told == 0) ::usleep(1000);
  --told;
}
void way_lingering(int count) {
  std::atexit([] {
    stay_until_told();
    launch(at_exit, 1);
    stay_until_told();
  });
  struct sigaction action{};
  action.sa_handler = [](int) { ++told; };
  ::sigaction(SIGUSR1, &action, nullptr);
  at_exit = by_dlsym();
  launch(at_exit, count);
}

template <class Function>
Function named(const char* name) {
  return reinterpret_cast<Function>(::dlsym(library(), name));
}

// Makes two contexts, fails to destroy one twice, destroys one, and launches on in the other.
// Natively right, as the parent has not initialised the driver.
void way_fork_contexts(int) {
  // Before the fork: to look a function up makes a child known, too.
  const auto answer = named<void (*)(int)>("gs_answer_contexts");
  const auto retain = named<CUresult (*)(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain");
  const pid_t child = ::fork();
  if (child == 0) {
    answer(0);
    CUcontext context = nullptr;
    std::_Exit(retain(&context, 0) == CUDA_SUCCESS ? 0 : 1);
  }
  expect(status_of(child) == 0, "the child failed");
}

void way_contexts(int count) {
  const auto answer = named<void (*)(int)>("gs_answer_contexts");
  const auto destroy = named<CUresult (*)(CUcontext)>("cuCtxDestroy_v2");
  const auto create = named<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
  const Launch function = by_dlsym();
  launch(function, 3);
  CUcontext context = nullptr;
  answer(0);
  for (int i = 0; i < 2; ++i) expect(create(&context, 0, 0) == CUDA_SUCCESS, "no context");
  answer(CUDA_ERROR_INVALID_CONTEXT);
  for (int i = 0; i < 2; ++i) expect(destroy(context) != CUDA_SUCCESS, "it was destroyed");
  answer(0);
  expect(destroy(context) == CUDA_SUCCESS, "it was not destroyed");
  way_slow(count);
}

// A thread gives the primary context up while another one, which has taken it once more, is still
// in the driver, until the first one has come back or has waited for long. One is left. Returns
// whether the first one has waited.
std::atomic<bool> has_taken{false}, has_left{false}, has_given_up{false};
thread_local bool takes_it = false;
bool takes_and_gives_up() {
  static const auto retain = named<CUresult (*)(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain");
  const auto release = named<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxRelease_v2");
  const Launch function = by_dlsym();
  launch(function, 3);
  named<void (*)(int)>("gs_answer_contexts")(0);
  CUcontext context = nullptr;
  expect(retain(&context, 0) == CUDA_SUCCESS, "no context");
  named<void (*)(void (*)())>("gs_in_contexts")([] {
    if (!takes_it) return;
    has_taken = true;
    for (int i = 0; i < 200 && !has_given_up; ++i) ::usleep(1000);
    has_left = true;
  });
  std::thread other([] {
    takes_it = true;
    CUcontext same = nullptr;
    expect(retain(&same, 0) == CUDA_SUCCESS, "no context");
  });
  while (!has_taken) ::usleep(1000);
  expect(release(0) == CUDA_SUCCESS, "it was not given up");
  const bool was_apart = has_left;
  has_given_up = true;
  other.join();
  return was_apart;
}
void way_taken(int count) {
  takes_and_gives_up();
  way_slow(count);
}
void way_taken_apart(int count) {
  expect(takes_and_gives_up(), "it was given up while another thread took it");
  way_slow(count);
}

// A thread of it is cancelled in a call that waits for all work; then it launches as way_slow().
void way_cancelled(int count) {
  static const auto finish = named<CUresult (*)()>("cuCtxSynchronize");
  const Launch function = by_dlsym();
  launch(function, 1);
  finish();
  named<void (*)()>("gs_block")();
  pthread_t thread{};
  const auto wait = [](void*) -> void* {
    finish();
    return nullptr;
  };
  expect(::pthread_create(&thread, nullptr, wait, nullptr) == 0, "no thread");
  expect(::pthread_cancel(thread) == 0, "it is not cancelled");
  void* result = nullptr;
  expect(::pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED, "it has returned");
  way_slow(count);
}

// The first question to the agent, and all launches, while signals come every 0.5 ms.
void way_slow_with_signals(int count) {
  struct sigaction action{};
  action.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 500}, {0, 500}};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  way_slow(count);
}

// As way_slow(), with copies.
void copy_slowly(const char* way, int index, int count) {
  using Copy = CUresult (*)(uint64_t, uint64_t, size_t, CUstream);
  const auto copy = reinterpret_cast<Copy>(::dlsym(library(), way));
  for (int i = 0; i < count; ++i) {
    expect(copy(0, 0, 1, nullptr) == answer_of(index), "the copy went elsewhere");
    ::usleep(1000);
  }
}
void way_slow_on_gpu(int count) {
  copy_slowly("cuMemcpyDtoDAsync_v2", shim::kHook_cuMemcpyDtoDAsync_v2, count);
}
void way_slow_from_host(int count) {
  copy_slowly("cuMemcpyHtoDAsync_v2", shim::kHook_cuMemcpyHtoDAsync_v2, count);
}

// dlsym and dlvsym for functions that are not the driver's.
void way_ordinary(int) {
  expect(::dlsym(RTLD_DEFAULT, "malloc") != nullptr, "malloc");
  expect(::dlsym(RTLD_NEXT, "malloc") == ::dlsym(RTLD_DEFAULT, "malloc"), "the next malloc");
  expect(::dlsym(RTLD_DEFAULT, "no_such_function") == nullptr, "found what is not there");
  const char* const why = ::dlerror();
  expect(why != nullptr && std::strstr(why, "no_such_function") != nullptr, "dlerror");
  expect(::dlsym(RTLD_DEFAULT, "cuNothing") == nullptr, "cuNothing");
  fmt::print("{}\n", library_of(::dlsym(RTLD_DEFAULT, "dlsym")));
}

const std::map<std::string, std::function<void(int)>> kWays{
#ifdef GS_LINKED
    {"direct", way_direct},
    {"init-direct", way_init_direct},
#endif
    {"init", way_init},
    {"init-child", way_init_child},
    {"dlsym", way_dlsym},
    {"dlvsym", way_dlvsym},
    {"default", way_default},
    {"lookup", way_lookup},
    {"runtime", way_runtime},
    {"every", way_every},
    {"versions", way_versions},
    {"threads", way_threads},
    {"racing", way_racing},
    {"fork", way_fork},
    {"fork-contexts", way_fork_contexts},
    {"dlclose", way_dlclose},
    {"signal", way_signal},
    {"traces", way_traces},
    {"slow", way_slow},
    {"ordinary", way_ordinary},
    {"announced", way_announced},
    {"held", way_held},
    {"slow-among-own-files", way_slow_among_own_files},
    {"slow-with-signals", way_slow_with_signals},
    {"lingering", way_lingering},
    {"contexts", way_contexts},
    {"taken", way_taken},
    {"taken-apart", way_taken_apart},
    {"cancelled", way_cancelled},
    {"slow-on-gpu", way_slow_on_gpu},
    {"slow-from-host", way_slow_from_host},
};

}  // namespace
}  // namespace gpushare::test

int main(int argc, char** argv) {
  const auto way = gpushare::test::kWays.find(argc < 2 ? "" : argv[1]);
  if (way == gpushare::test::kWays.end()) return 2;
  way->second(argc < 3 ? 1 : std::atoi(argv[2]));
  return 0;
}
