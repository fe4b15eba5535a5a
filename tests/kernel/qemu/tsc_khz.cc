// SPDX-License-Identifier: Apache-2.0
// Prints how many thousand times a second the processor's time stamp counter counts, which is also
// that of a guest under QEMU. run.sh tells the guest's kernel: where the kernel measures it itself,
// as it boots, a busy host that stops QEMU for some milliseconds meanwhile makes it as much as
// fifty times too slow, and the guest's clock as many times too fast.
#include <x86intrin.h>

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

struct Instant {
  Clock::time_point time;
  uint64_t count;
};

// Of a thousand readings the one between whose two looks at the clock the least time passed.
Instant read_both() {
  Instant best{};
  Clock::duration least = Clock::duration::max();
  for (int i = 0; i < 1000; ++i) {
    const Clock::time_point before = Clock::now();
    const uint64_t count = __rdtsc();
    const Clock::duration took = Clock::now() - before;
    if (took >= least) continue;
    least = took;
    best = {before + took / 2, count};
  }
  return best;
}

}  // namespace

int main() {
  const Instant begin = read_both();
  while (Clock::now() < begin.time + 100ms) _mm_pause();
  const Instant end = read_both();
  const std::chrono::duration<double, std::milli> passed = end.time - begin.time;
  std::printf("%.0f\n", static_cast<double>(end.count - begin.count) / passed.count());
}
