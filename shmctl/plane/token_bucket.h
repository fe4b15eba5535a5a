// SPDX-License-Identifier: Apache-2.0
// TokenBucket: a budget of GPU time in shared memory. It earns quota / period nanoseconds of GPU
// time per nanosecond, up to `burst`; use is charged to it and may overdraw it (tokens < 0).
//
// Nothing is ever credited; credit is computed. With C(t) = floor(quota * t / period), t in ns
// since boot, the bucket holds
//     tokens(t) = C(t) - spent
// and `spent`, all charges plus all that overflowed the burst, is the one word of state:
//     charge(n)   spent += n
//     refill(t)   spent = max(spent, C(t) - burst)      what is above the burst is lost
// So a refill done twice, by whomever, is one refill; rounding never adds up (C is exact at every
// instant); and every step is one atomic instruction, so that death between two loses nothing.
//   Example: quota 30 ms, period 100 ms, burst 30 ms. At t = 1 s C = 300 ms; spent = 270 ms means
//   full. A charge of 50 ms makes spent 320, tokens -20 ms. At t = 1.1 s C = 330: tokens 10 ms.
//
// The configuration is two copies beside the state; the state's low bits are a generation that says
// which copy is in force. configure() fills the other copy and then, by one compare-and-swap, moves
// state and generation together: no charge is lost and a refill in flight with the old rate fails
// its own compare-and-swap and starts again. Sixty-four generations: a refill would have to sleep
// through exactly a multiple of 64 changes and find `spent` unchanged to the nanosecond to be
// fooled.
//
// Threads and processes: refill, charge and reads from any; configure and disable from one at a
// time (the agent). A bucket of zero bytes is valid and disabled. `spent` wraps after 2^57 ns, 4.5
// years of machine uptime.
#pragma once

#include <atomic>
#include <cstdint>

#include "shmctl/base/clock.h"

namespace gpushare {

class alignas(64) TokenBucket {
 public:
  // Sets the rate and the burst. Requires 0 < quota, 0 < period, 0 < burst. A bucket that was
  // disabled starts full; else the tokens stay as they are (at most the new burst), including debt.
  // With the configuration that it has already: nothing happens.
  void configure(Nanos quota, Nanos period, Nanos burst, Time now);
  // No limit any more.
  void disable();
  bool is_enabled() const;

  // Credits what was earned until `now` and returns the tokens. A `now` in the past changes
  // nothing.
  Nanos refill(Time now);
  // Takes `used` >= 0 of GPU time; the bucket may go below zero. Refill first: an idle bucket that
  // is charged before it was refilled pays from the overflow that the refill would have dropped.
  void charge(Nanos used);
  // Tokens at the instant of the last refill. 0 when disabled.
  Nanos tokens() const;

 private:
  struct Config {
    std::atomic<int64_t> quota_ns;  // 0: disabled
    std::atomic<int64_t> period_ns;
    std::atomic<int64_t> burst_ns;
  };
  struct Rate {  // a Config read out
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

  std::atomic<uint64_t> state_;       // spent << 6 | generation
  std::atomic<int64_t> refilled_ns_;  // latest `now` of a refill; what tokens() is computed for
  Config configs_[2];                 // in force: [generation % 2]
};
static_assert(sizeof(TokenBucket) == 64);

}  // namespace gpushare
