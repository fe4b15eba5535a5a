// SPDX-License-Identifier: Apache-2.0
// new_context: works on GPU 0, and when that stands still (it is frozen) goes on in a new context
// on GPU 1. Prints what it got done there, a line of JSON a fifth of a second.
#include <atomic>
#include <cstdio>
#include <thread>

#include "tests/workloads/common/busy_kernel.h"

namespace gpushare::workloads {
namespace {

// One kernel after the other, each waited for.
[[noreturn]] void work(uint64_t device, std::atomic<uint64_t>& done) {
  const GpuSession session(device, CU_CTX_SCHED_BLOCKING_SYNC);
  BusyKernel kernel(session, 1);
  const CUstream stream = session.new_stream();
  while (true) {
    kernel.submit(stream, 1, 1000);
    (void)kernel.checksum();  // waits
    ++done;
  }
}

[[noreturn]] void run() {
  check(cuInit(0), "cuInit");
  static std::atomic<uint64_t> first, second;
  std::thread([] { work(0, first); }).detach();
  uint64_t seen = 0;
  bool has_fled = false;
  while (true) {
    sleep_until_ns(now_ns() + 200'000'000);
    const bool stands_still = first == seen && seen > 0;
    seen = first;
    if (stands_still && !has_fled) std::thread([] { work(1, second); }).detach();
    has_fled |= stands_still;
    std::printf("{\"gpu0\":%llu,\"gpu1\":%llu}\n", static_cast<unsigned long long>(seen),
                static_cast<unsigned long long>(second.load()));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace gpushare::workloads

int main() {
  gpushare::workloads::set_program_name("new_context");
  gpushare::workloads::run();
}
