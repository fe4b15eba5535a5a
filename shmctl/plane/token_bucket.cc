// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/token_bucket.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace gpushare {
namespace {

int64_t to_ns(Time time) { return std::max<int64_t>(0, time.time_since_epoch().count()); }

int64_t saturate(__int128 value) {
  constexpr __int128 kMin = std::numeric_limits<int64_t>::min();
  constexpr __int128 kMax = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::clamp(value, kMin, kMax));
}

}  // namespace

__int128 TokenBucket::Rate::credit(int64_t t_ns) const {
  return static_cast<__int128>(quota_ns) * t_ns / period_ns;
}

int64_t TokenBucket::spent_of(uint64_t state) {
  return static_cast<int64_t>(state) >> kGenerationBits;
}

uint64_t TokenBucket::pack(int64_t spent, uint64_t generation) {
  return static_cast<uint64_t>(spent) << kGenerationBits | (generation & kGenerationMask);
}

// Acquire pairs with the release stores in switch_to(): a thread that reads a word of a later
// configuration also sees a later `state_`, so that its compare-and-swap fails.
TokenBucket::Rate TokenBucket::load(const Config& config) {
  return {config.quota_ns.load(std::memory_order_acquire),
          config.period_ns.load(std::memory_order_acquire),
          config.burst_ns.load(std::memory_order_acquire)};
}

void TokenBucket::configure(Nanos quota, Nanos period, Nanos burst, Time now) {
  assert(quota.count() > 0 && period.count() > 0 && burst.count() > 0);
  switch_to({quota.count(), period.count(), burst.count()}, now);
}

void TokenBucket::disable() { switch_to({0, 0, 0}, Time{}); }

void TokenBucket::switch_to(const Rate& rate, Time now) {
  uint64_t state = state_.load(std::memory_order_acquire);
  const Rate old = load(config_of(state));
  if (old == rate) return;

  // Only this thread changes the generation, so the other copy is ours until the swap below.
  Config& next = configs_[(state + 1) % 2];
  next.quota_ns.store(rate.quota_ns, std::memory_order_release);
  next.period_ns.store(rate.period_ns, std::memory_order_release);
  next.burst_ns.store(rate.burst_ns, std::memory_order_release);
  // Before the swap, so that tokens() never computes the new credit for an instant before `now`.
  note_refill(now);
  const int64_t t_ns = refilled_ns_.load(std::memory_order_relaxed);

  uint64_t changed;
  do {
    int64_t spent = 0;
    if (rate.is_enabled()) {
      __int128 tokens = rate.burst_ns;
      if (old.is_enabled())
        tokens = std::min(
            {tokens, static_cast<__int128>(old.burst_ns), old.credit(t_ns) - spent_of(state)});
      spent = saturate(rate.credit(t_ns) - tokens);
    }
    changed = pack(spent, state + 1);
    // Release pairs with the acquire loads of `state_`: a thread that sees the generation sees its
    // copy of the configuration.
  } while (!state_.compare_exchange_weak(state, changed, std::memory_order_acq_rel,
                                         std::memory_order_acquire));
}

bool TokenBucket::is_enabled() const {
  return load(config_of(state_.load(std::memory_order_acquire))).is_enabled();
}

Nanos TokenBucket::refill(Time now) {
  uint64_t state = state_.load(std::memory_order_acquire);
  for (;;) {
    const Rate rate = load(config_of(state));
    if (!rate.is_enabled()) return Nanos{0};
    const int64_t least_spent = saturate(rate.credit(to_ns(now)) - rate.burst_ns);
    if (spent_of(state) >= least_spent) break;
    if (state_.compare_exchange_weak(state, pack(least_spent, state), std::memory_order_acq_rel,
                                     std::memory_order_acquire))
      break;
  }
  // After the swap: a process that dies in between leaves tokens() too low until the next refill,
  // never too high.
  note_refill(now);
  return tokens();
}

void TokenBucket::charge(Nanos used) {
  // Relaxed is enough: this adds to the one word of state and publishes nothing else.
  state_.fetch_add(static_cast<uint64_t>(used.count()) << kGenerationBits,
                   std::memory_order_relaxed);
}

Nanos TokenBucket::tokens() const {
  uint64_t state = state_.load(std::memory_order_acquire);
  for (;;) {
    const Rate rate = load(config_of(state));
    const int64_t t_ns = refilled_ns_.load(std::memory_order_acquire);
    const uint64_t again = state_.load(std::memory_order_acquire);
    if ((again & kGenerationMask) == (state & kGenerationMask)) {
      if (!rate.is_enabled()) return Nanos{0};
      const __int128 tokens = rate.credit(t_ns) - spent_of(again);
      return Nanos{saturate(std::min<__int128>(tokens, rate.burst_ns))};
    }
    state = again;
  }
}

void TokenBucket::note_refill(Time now) {
  const int64_t t_ns = to_ns(now);
  int64_t latest = refilled_ns_.load(std::memory_order_relaxed);
  // Release pairs with the acquire in tokens(): a thread that sees the instant sees that the
  // overflow was dropped.
  while (latest < t_ns && !refilled_ns_.compare_exchange_weak(
                              latest, t_ns, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

}  // namespace gpushare
