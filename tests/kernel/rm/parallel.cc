// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel/rm/parallel.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>
#include <thread>
#include <vector>

#include "tests/kernel/rm/context.h"

namespace gpushare {
namespace {

uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// What the callers share: they begin together, and each writes what its calls took. The first half
// of its numbers is of those that make memory.
struct Shared {
  std::atomic<uint32_t> ready;
  uint64_t took_ns[];
};

void call_often(Shared& shared, uint32_t callers, std::span<uint64_t> took_ns) {
  constexpr uint64_t kBytes = 64 << 10;
  Context context;
  context.open();
  const size_t calls = took_ns.size() / 2;
  ++shared.ready;
  while (shared.ready < callers) ::sched_yield();
  for (size_t i = 0; i < calls; ++i) {
    const uint64_t begin = now_ns();
    if (!context.allocate("alloc", kBytes).is_ok()) die("no memory while it was measured");
    const uint64_t made = now_ns();
    if (!context.free_memory().is_ok()) die("memory was not freed");
    took_ns[i] = made - begin;
    took_ns[calls + i] = now_ns() - made;
  }
}

void print(const char* word, const char* kind, std::vector<uint64_t> took_ns) {
  std::ranges::sort(took_ns);
  const auto at = [&](double part) {
    return static_cast<unsigned long long>(
        took_ns[static_cast<size_t>(part * static_cast<double>(took_ns.size() - 1))]);
  };
  std::printf("%s %s calls %zu p50_ns %llu p99_ns %llu max_ns %llu\n", word, kind, took_ns.size(),
              at(0.5), at(0.99), at(1));
}

}  // namespace

void parallel_calls(const std::string& how, bool are_processes) {
  char* rest = nullptr;
  const uint32_t callers = static_cast<uint32_t>(std::strtoul(how.c_str(), &rest, 10));
  const size_t calls = *rest == ':' ? std::strtoul(rest + 1, nullptr, 10) : 0;
  if (callers == 0 || calls == 0) die("parallel=CALLERS:CALLS");
  const size_t numbers = size_t{callers} * calls * 2;
  void* const memory = ::mmap(nullptr, sizeof(Shared) + numbers * sizeof(uint64_t),
                              PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("no memory for the results");
  auto& shared = *static_cast<Shared*>(memory);
  const auto call_as = [&](uint32_t id) {
    call_often(shared, callers, {shared.took_ns + size_t{id} * calls * 2, calls * 2});
  };
  std::vector<std::thread> threads;
  for (uint32_t id = 0; id < callers; ++id) {
    if (!are_processes) {
      threads.emplace_back(call_as, id);
    } else if (::fork() == 0) {
      call_as(id);
      std::_Exit(0);
    }
  }
  for (std::thread& thread : threads) thread.join();
  int status = 0;
  while (are_processes && ::wait(&status) > 0)
    if (status != 0) die("a caller failed");
  std::vector<uint64_t> made, freed;
  for (size_t i = 0; i < numbers; ++i)
    ((i / calls) % 2 == 0 ? made : freed).push_back(shared.took_ns[i]);
  const char* const word = are_processes ? "parallel-processes" : "parallel";
  print(word, "alloc", std::move(made));
  print(word, "free", std::move(freed));
}

}  // namespace gpushare
