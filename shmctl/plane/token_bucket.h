// SPDX-License-Identifier: Apache-2.0
// TokenBucket: a budget of GPU time in shared memory. It earns quota / period nanoseconds of GPU
// time per nanosecond, up to `burst`; use is charged to it and may overdraw it (tokens < 0).
//
// Threads and processes: any may refill, charge and read; one at a time (the agent) may configure
// and disable. Each step is one atomic instruction, so that a process that dies between two of them
// loses nothing. A bucket of zero bytes is valid and disabled. `spent` wraps after 2^57 ns, which
// is 4.5 years of machine uptime.
#pragma once

#include <atomic>
#include <cstdint>

#include "shmctl/base/clock.h"

namespace gpushare {

// The bucket stores no credit; it computes it. With C(t) = floor(quota * t / period), t in ns since
// boot, it holds
//     tokens(t) = C(t) - spent
// and `spent`, the sum of all charges and of all that overflowed the burst, is the one word of
// state:
//     charge(n)   spent += n
//     refill(t)   spent = max(spent, C(t) - burst)      what is above the burst is lost
// So a refill that is done twice, by any two processes, counts once, and rounding errors never add
// up, because C is exact at every instant.
//   Example: quota 30 ms, period 100 ms, burst 30 ms. At t = 1 s, C is 300 ms and spent = 270 ms
//   means full. A charge of 50 ms makes spent 320 ms and tokens -20 ms. At t = 1.1 s, C is 330 ms
//   and tokens are 10 ms.
//
// Two copies of the configuration lie beside the state; the state's low bits are a generation that
// says which copy is in force. configure() fills the other copy and then moves state and generation
// together by one compare-and-swap: no charge is lost, and a refill in flight with the old rate
// fails its own compare-and-swap and starts again. There are 64 generations: only a refill that
// sleeps through exactly a multiple of 64 changes and then finds `spent` unchanged to the
// nanosecond would use an old rate.
class alignas(64) TokenBucket {
 public:
  // Sets the rate and the burst. Requires 0 < quota, 0 < period, 0 < burst. A bucket that was
  // disabled starts full; otherwise the tokens, or the debt, stay as they are, at most the new
  // burst. Does nothing when the bucket has this configuration already.
  void configure(Nanos quota, Nanos period, Nanos burst, Time now);
  // From now on there is no limit.
  void disable();
  bool is_enabled() const;

  // Credits what was earned until `now` and returns the tokens. A `now` before that of an earlier
  // refill changes nothing.
  Nanos refill(Time now);
  // Takes `used` of GPU time; the tokens may become negative. Call refill() first: otherwise an
  // idle bucket pays from the overflow that the refill would have dropped. < 0 gives back what was
  // taken before; what is above the burst then the next refill drops.
  void charge(Nanos used);
  // The tokens at the instant of the last refill; 0 when disabled.
  Nanos tokens() const;

 private:
  struct Config {
    std::atomic<int64_t> quota_ns;  // 0 when disabled
    std::atomic<int64_t> period_ns;
    std::atomic<int64_t> burst_ns;
  };
  struct Rate {  // a copy of a Config
    int64_t quota_ns, period_ns, burst_ns;
    bool is_enabled() const { return quota_ns > 0 && period_ns > 0; }
    __int128 credit(int64_t t_ns) const;
    bool operator==(const Rate&) const = default;
  };
  static constexpr int kGenerationBits = 6;
  static constexpr uint64_t kGenerationMask = (1u << kGenerationBits) - 1;

  static int64_t spent_of(uint64_t state);
  static uint64_t pack(int64_t spent, uint64_t generation);
  static Rate load(const Config& config);
  const Config& config_of(uint64_t state) const { return configs_[state % 2]; }
  void switch_to(const Rate& rate, Time now);
  void note_refill(Time now);

  std::atomic<uint64_t> state_;  // spent << 6 | generation
  std::atomic<int64_t>
      refilled_ns_;    // the latest `now` of a refill, for which tokens() is computed
  Config configs_[2];  // [generation % 2] is in force
};
static_assert(sizeof(TokenBucket) == 64);

}  // namespace gpushare
