// SPDX-License-Identifier: Apache-2.0
// ShimSlot: what the agent and the shim inside one process (libgpushare.so) tell each other: one
// page of shared memory of its own for every process, so that a process can neither see nor write
// another one's. The agent makes it as a sealed memfd (its size cannot change under the other side)
// and hands the descriptor over a socket; both map it.
//
// Neither side trusts the other: the agent reads counters and acknowledgements as hints about this
// one process, which can only harm itself by lying; the shim obeys a page only while its agent is
// alive. Nothing here is a pointer, all is fixed-width, and zero bytes after the head are a valid
// slot: an open gate and no partition.
//
// Order: the head is written before the descriptor is sent, and constant afterwards. Every other
// word stands for itself, so all loads and stores may be relaxed, except where a member says
// otherwise; waking goes through the futex, which orders by itself.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushare {

inline constexpr uint64_t kShimMagic = 0x31304D4948535047;  // "GPSHIM01", little endian
inline constexpr uint32_t kShimVersion = 2;
inline constexpr uint32_t kShimGpus = 16;
inline constexpr uint32_t kShimStripes = 16;
inline constexpr uint32_t kShimSoon = 4;
inline constexpr std::size_t kShimPathBytes = 128;
inline constexpr std::size_t kShimSlotBytes = 4096;

// What a process is asked to do for us. Fixed for its life: what no feature needs is not hooked,
// and a pointer that the program got from the driver cannot be taken back.
enum ShimFeature : uint32_t {
  kShimGate = 1,        // launches wait while the gate is closed
  kShimPartitions = 2,  // streams move to the SM partition that `gpus` names
  kShimIterations = 4,  // iterations are recognised, or taken as announced, and may be held
};
inline constexpr uint32_t kShimFeatures = kShimGate | kShimPartitions | kShimIterations;

// The agent is taken for dead when its beat is older than this: gates open by themselves.
inline constexpr uint64_t kShimBeatTimeoutNs = 500'000'000;
// So it beats at least this often.
inline constexpr uint64_t kShimBeatNs = 100'000'000;

struct ShimHead {
  uint64_t magic;    // kShimMagic
  uint32_t version;  // kShimVersion
  uint32_t bytes;    // kShimSlotBytes
  uint32_t features;
  uint32_t gpu_count;  // entries of `gpus` in use
};

// Why `applied` is not `wanted`; where it is, this says nothing.
enum class ShimFollows : uint32_t {
  kUnknown = 0,       // no launch has looked yet, or the shim is an older one
  kFollows = 1,       // it does
  kWaitsForRest = 2,  // the set is to be made, and something of the process runs
  kPauses = 3,        // that has taken too long: not tried again for a while
  kOwnContexts = 4,   // it has contexts of its own: nothing can be made
  kNoRoom = 5,        // it has as many sets as it can, and uses all
  kRefused = 6,       // the driver makes no such set
};

// One GPU, and the part of it that the process may use.
struct ShimGpu {
  char pci[16];  // as cuDeviceGetPCIBusId writes it, "0000:3b:00.0"; constant
  // Written by the agent. Bit n: the n-th group of 8 SMs, in the order in which the driver splits
  // them, and after those what it leaves (Partitions of the shim); 0: the whole GPU, without a
  // partition. To keep sets of processes disjoint, the agent shrinks one, waits for `applied`, and
  // then grows the other.
  std::atomic<uint64_t> wanted;
  // Written by the shim: the set that every launch from now on runs in. Release, after the last
  // launch into another set was handed to the driver; pairs with the agent's acquire. Work that was
  // launched before still runs where it is.
  std::atomic<uint64_t> applied;
  std::atomic<uint64_t> moves;  // by the shim: streams that went from one partition to another
  // By the agent, for the program to read (gpushare.h): of all, what its tenant is entitled to and
  // has now, with what it borrows. 0: unknown.
  std::atomic<uint32_t> sms, sms_entitled, sms_in_use;
  std::atomic<ShimFollows> follows;  // by the shim, when a launch looked for `wanted` last
};

// Of the same GPU, by the agent: sets that the process may be wanted in before long, 0: none. The
// shim makes them when the program has waited for all of its work; until then it does nothing.
struct ShimSoon {
  std::atomic<uint64_t> sets[kShimSoon];
};

enum class ShimSource : uint32_t { kNone = 0, kRecognised = 1, kAnnounced = 2 };
enum class ShimPhase : uint32_t { kUnknown = 0, kPrefill = 1, kDecode = 2 };

// The iterations of the process: training steps, decoding steps, requests. The sums only rise: who
// looks twice has the mean of what came between. A process that announces one is no longer guessed
// at.
struct alignas(64) ShimIterations {
  // Written by the shim under `sequence`, which is odd meanwhile: a reader that found it odd, or
  // changed when it had read, reads again.
  std::atomic<uint32_t> sequence;
  std::atomic<ShimSource> source;    // of what follows; kNone: nothing is known
  std::atomic<uint32_t> confidence;  // in permille; announced: 1000
  std::atomic<ShimPhase> phase;      // of the iteration that began last
  std::atomic<uint64_t> begun;
  std::atomic<uint64_t> ended;       // recognised: when the next one begins
  std::atomic<uint64_t> period_ns;   // mean, from begin to begin; here and below 0: unknown
  std::atomic<uint64_t> p99_ns;      // of the same; announced: of the time from begin to end
  std::atomic<uint64_t> launches;    // mean, in thousandths
  std::atomic<uint64_t> busy_ns;     // sum over those that ended: less what the GPU surely idled
  std::atomic<uint64_t> latency_ns;  // sum over those that ended: from arrival to end where
                                     // arrivals are announced, else from begin to end
  std::atomic<uint64_t> arrivals;    // announced; 0: they are not
  std::atomic<uint32_t> slo_us;      // that the program asked for
  std::atomic<uint32_t> skipped;     // calls that were not taken note of: another one took too long
  std::atomic<uint64_t> began_ns;    // CLOCK_MONOTONIC: when the last one began

  // Written by the agent: iterations beyond so many begun wait; 0: none does. `turn` is a futex,
  // and changes with it.
  alignas(64) std::atomic<uint64_t> run_until;
  std::atomic<uint32_t> turn;
  // Written by the shim: threads that stand at the boundary, and since when.
  std::atomic<uint32_t> waiting;
  std::atomic<uint64_t> waiting_since_ns;  // CLOCK_MONOTONIC; 0: none stands there
};

// Written by the shim. Threads are spread over stripes, so that they do not share a cache line.
struct alignas(64) ShimStripe {
  std::atomic<uint64_t> launches;  // counted before they pass the gate
  uint64_t reserved[7];
};

struct ShimSlot {
  ShimHead head;

  // Written by the agent. The gate is a futex: odd means closed. Closing and opening add 1, so that
  // every state has its own number.
  alignas(64) std::atomic<uint32_t> gate;
  uint32_t reserved_gate;
  std::atomic<uint64_t> beat_ns;  // CLOCK_MONOTONIC: the agent was alive then

  // Written by the shim.
  alignas(64) std::atomic<uint32_t> waiting;  // threads that stand at the gate
  std::atomic<uint32_t> seen_gate;            // the closed state that a thread last stopped at
  std::atomic<uint64_t> waited_ns;            // by all threads together
  std::atomic<uint64_t> gave_up;  // waits that ended because the agent's beat had stopped

  alignas(64) ShimGpu gpus[kShimGpus];
  ShimStripe stripes[kShimStripes];
  ShimIterations iterations;
  // Constant: the directory of the MPS server that the process is to be a client of, ends with 0;
  // empty: none.
  char mps_pipe[kShimPathBytes];
  ShimSoon soon[kShimGpus];  // of `gpus`; an older shim does not look, an older agent leaves zeros
  uint8_t reserved[kShimSlotBytes - 192 - sizeof(ShimGpu) * kShimGpus -
                   sizeof(ShimStripe) * kShimStripes - sizeof(ShimIterations) - kShimPathBytes -
                   sizeof(ShimSoon) * kShimGpus];
};

// Launches by all threads of the process: kernels, graphs, and copies and fills on the GPU.
inline uint64_t launches_of(const ShimSlot& slot) {
  uint64_t sum = 0;
  for (const ShimStripe& stripe : slot.stripes)
    sum += stripe.launches.load(std::memory_order_relaxed);
  return sum;
}

static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared memory must not hide a lock");
static_assert(sizeof(ShimHead) == 24 && sizeof(ShimGpu) == 56 && sizeof(ShimStripe) == 64);
static_assert(offsetof(ShimSlot, gate) == 64 && offsetof(ShimSlot, beat_ns) == 72);
static_assert(offsetof(ShimSlot, waiting) == 128 && offsetof(ShimSlot, gpus) == 192);
static_assert(offsetof(ShimSlot, stripes) == 1088 && offsetof(ShimSlot, iterations) == 2112);
static_assert(offsetof(ShimIterations, run_until) == 128 && sizeof(ShimIterations) == 192);
static_assert(offsetof(ShimSlot, mps_pipe) == 2304 && offsetof(ShimSlot, soon) == 2432 &&
              sizeof(ShimSlot) == kShimSlotBytes);

}  // namespace gpushare
