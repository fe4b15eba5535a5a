// SPDX-License-Identifier: Apache-2.0
// ShimSlot: what the agent and the shim inside one process (libgpushare.so) tell each other. Every
// process has one page of shared memory, which no other process can see or write. The agent makes
// it as a sealed memfd, so that its size cannot change, and sends the descriptor (protocol.h); both
// sides map it. It holds no pointers; zero bytes after the head mean an open gate and no partition.
//
// The shim obeys a slot only while its agent is alive. The process can write every byte of it, so
// all that the agent reads here is the process's own claim: SMs and gates of the shim are kept by
// agreement, not enforced. See "Trust" below for what a process gains by lying.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shmctl/shim/time_histogram.h"

// Trust. A process that lies in its slot cannot stop the agent or change what another process's
// slot holds, but it can take GPU time and SMs that were meant for others: when it reports
// `applied` and goes on launching elsewhere, the agent gives those SMs to another process and both
// use them; when it writes `wanted` or opens `gate` itself, it is out of its partition or not held
// until the agent's next step, and likewise when it writes `credit`; when it reports fewer launches
// than it makes, its cap is charged less, as far as other clients explain what their server used;
// when it makes up what its kernels need at once, its partition is widened at the others' expense;
// when it makes up iterations that could be, the policy slo gives it more than it needs
// (sched/spatial/slot_bounds.h). What the kernel module and the resource manager enforce (freezes,
// time slices) does not depend on the slot.
//
// Order of memory accesses. The head is written before the descriptor is sent, and constant
// afterwards, but for `gpu_count`, which rises when another GPU is shared. Every other word stands
// for itself, so all loads and stores may be relaxed, except where a member says otherwise; waking
// goes through the futex, which orders by itself.
namespace gpushare {

inline constexpr uint64_t kShimMagic = 0x31304D4948535047;  // "GPSHIM01", little endian
inline constexpr uint32_t kShimVersion = 2;
inline constexpr uint32_t kShimGpus = 16;
inline constexpr uint32_t kShimStripes = 16;
inline constexpr uint32_t kShimSoon = 4;
inline constexpr std::size_t kShimPathBytes = 128;
inline constexpr std::size_t kShimSlotBytes = 4096;

// What the agent wants the shim of a process to do. It is fixed for the life of the process: a
// function that no feature needs is not hooked, and a pointer that the program has got from the
// driver cannot be taken back.
enum ShimFeature : uint32_t {
  kShimGate = 1,        // launches wait while the gate is closed
  kShimPartitions = 2,  // streams move to the SM partition that `gpus` names
  kShimIterations = 4,  // iterations are recognised, or taken as announced, and may be held
  kShimCredit = 8,      // launches that are in line wait on the GPU itself while the gate is closed
  kShimShown = 16,      // the program is shown `sms_shown` as the number of SMs of a GPU
};
inline constexpr uint32_t kShimFeatures =
    kShimGate | kShimPartitions | kShimIterations | kShimCredit | kShimShown;

// When the agent's beat is older than this, the shim takes it for dead, and no launch waits for it.
inline constexpr uint64_t kShimBeatTimeoutNs = 500'000'000;
// The agent beats at least this often.
inline constexpr uint64_t kShimBeatNs = 100'000'000;

struct ShimHead {
  uint64_t magic;    // kShimMagic
  uint32_t version;  // kShimVersion
  uint32_t bytes;    // kShimSlotBytes
  uint32_t features;
  // By the agent: entries of `gpus` in use. Stored with release when an entry is there; pairs with
  // the shim's acquire. An older shim looks only once.
  std::atomic<uint32_t> gpu_count;
};

// How long the work takes that the process usually has in line on a GPU, from a launch until all
// before it has ended: so long does it go on in its old partition when it has been told of another.
struct ShimDrain {
  std::atomic<uint64_t> ns;     // smoothed; 0: nothing was in line, or it is not known
  std::atomic<uint64_t> place;  // the partition in which that was measured, as in ShimGpu::wanted
};

// Why `applied` is not `wanted`. It says nothing while they are equal.
enum class ShimFollows : uint32_t {
  kUnknown = 0,         // no launch has looked yet, or the shim is an older one
  kFollows = 1,         // the partition is there, and streams go to it
  kWaitsForRest = 2,    // launches are held until the work in line has ended
  kPauses = 3,          // no end came in sight, so that is not tried again for a while
  kOwnContexts = 4,     // the program has contexts of its own, so no partition can be made
  kNoRoom = 5,          // the process has as many partitions as it can have, and uses all
  kRefused = 6,         // the driver does not make this partition
  kTooManyStreams = 7,  // the shim lacks some stream, so all of them are in the whole GPU
  kWorkRemains = 8,     // new work goes there, work of before still runs elsewhere
  kLeaves = 9,          // only the agent says so: it follows, but `home_launches` rises
  kNewerDriver = 10,    // the driver is newer than the shim, so no partition is made
  // A library of the program was loaded with RTLD_DEEPBIND and reaches the driver past the shim, so
  // all streams are in the whole GPU.
  kBypassed = 11,
};

// One GPU, and the partition of it that the process is to use.
struct ShimGpu {
  char pci[16];  // as cuDeviceGetPCIBusId writes it, "0000:3b:00.0"; constant
  // Written by the agent. Bit n is the n-th group of 8 SMs, in the order in which the driver splits
  // the GPU; the SMs that the split leaves are the last group (streams/partitions.h of the shim).
  // 0: the whole GPU, without a partition. To keep the partitions of processes disjoint, the agent
  // shrinks one, waits for `applied`, and then grows the other.
  std::atomic<uint64_t> wanted;
  // Written by the shim: the partition that every launch from now on runs in. Stored with release
  // when all streams are there and what ran elsewhere has ended; pairs with the agent's acquire.
  std::atomic<uint64_t> applied;
  std::atomic<uint64_t> moves;  // by the shim: moves of streams from one partition to another
  // By the agent, for the program to read (gpushare.h): all SMs of the GPU, those that the tenant
  // is entitled to, and those that it has now, with what it borrows. 0: unknown.
  std::atomic<uint32_t> sms, sms_entitled, sms_in_use;
  std::atomic<ShimFollows> follows;  // by the shim, when a launch last looked for `wanted`
};

// By the agent, for the same GPU: partitions that it may want the process in before long; 0: none.
// The shim makes them when the program has waited for all of its work, and not before.
struct ShimSoon {
  std::atomic<uint64_t> sets[kShimSoon];
};

// By the shim, of one GPU: what launches need whose blocks did not fit into the partition at once.
// The agent may widen it for them; 0: there was none.
struct ShimNeeds {
  // SMs that a cooperative launch needed which the driver refused there. It ran in the whole GPU.
  std::atomic<uint32_t> refused_sms;
  // SMs on which all blocks of a launch would have been at once, if the whole GPU has as many. What
  // its blocks do if they wait for each other is to wait for ever.
  std::atomic<uint32_t> at_once_sms;
};

// Where the process's launches are held, and if only on the host, why.
enum class ShimHeld : uint32_t {
  kUnknown = 0,             // no launch has looked yet, or the shim is an older one
  kOnGpu = 1,               // launches that are in line, too
  kNoMemoryOperations = 2,  // the driver has no waits for words of memory, or refuses them
  kNotPinned = 3,           // the driver does not pin the slot
  kSeveralContexts = 4,     // the process works in several contexts, perhaps on several GPUs
  kCollectives = 5,  // it launches collectives, which must not be held apart from their peers
  kNotWatched = 6,   // no thread could be started that would free it when the agent dies
};

// The credit of the process (credit.h). Streams wait for `word` with numbers that rise.
struct alignas(64) ShimCredit {
  // Written by the agent, read by the GPU; a futex. Waits up to this number, in a circle, are let
  // through. Whoever finds the agent dead may write it, to let all through.
  std::atomic<uint32_t> word;
  // Written by the agent: so much work at most is in line on the GPU and not begun, beyond one
  // launch of each stream; further launches wait on the host. 0: as much as the program likes.
  std::atomic<uint32_t> most_ahead_us;
  // Written by the agent: not 0: the process wakes it when work comes after a rest, and when the
  // host has seen that all of it has run, because others give way to it meanwhile.
  std::atomic<uint32_t> tells;
  // Written by the shim.
  alignas(64) std::atomic<uint32_t> issued;  // the number of the last wait that was put in line
  std::atomic<ShimHeld> held;
  std::atomic<uint64_t> launch_ns, graph_ns;  // mean time on the GPU; 0: unknown
  // Written by the GPU: the number of a wait that was let through last, of any stream. While the
  // process has work, it changes about once a millisecond, or once a launch if that takes longer.
  // What is behind that wait may run still. And by the shim, together with `run`.
  alignas(64) std::atomic<uint32_t> reached;
  // Written by the shim: the number of a wait behind which the host has seen all to have run. 0: it
  // has seen nothing yet, or the shim is an older one.
  std::atomic<uint32_t> run;
};

enum class ShimSource : uint32_t { kNone = 0, kRecognised = 1, kAnnounced = 2 };
enum class ShimPhase : uint32_t { kUnknown = 0, kPrefill = 1, kDecode = 2 };

// The iterations of the process: training steps, decoding steps, requests. The sums only rise, so
// the difference of two readings gives the mean of what came between. When a process has announced
// an iteration, only those that it announces count.
struct alignas(64) ShimIterations {
  // Written by the shim, as one record: `sequence` is odd meanwhile. A reader that finds it odd, or
  // changed after it has read, reads again (published.h).
  std::atomic<uint32_t> sequence;
  std::atomic<ShimSource> source;    // how the rest is known; kNone: nothing is known
  std::atomic<uint32_t> confidence;  // in permille; 1000 if announced
  std::atomic<ShimPhase> phase;      // of the iteration that began last
  std::atomic<uint64_t> begun;
  std::atomic<uint64_t> ended;      // a recognised one ends when the next one begins
  std::atomic<uint64_t> period_ns;  // mean, from begin to begin; here and below 0: unknown
  std::atomic<uint64_t> p99_ns;     // of the period; if announced, of the time from begin to end
  std::atomic<uint64_t> launches;   // mean of an iteration, in thousandths
  std::atomic<uint64_t> busy_ns;    // sum over `ended`, without the time in which the GPU certainly
                                    // had no work of the process
  std::atomic<uint64_t> latency_ns;  // sum over `ended`, from arrival to end if arrivals are
                                     // announced, otherwise from begin to end
  std::atomic<uint64_t> arrivals;    // announced ones; 0: the program announces none
  std::atomic<uint32_t> slo_us;      // the mean time that the program asked for; 0: none
  std::atomic<uint32_t> skipped;     // calls that were not noted, as another one took too long
  std::atomic<uint64_t> began_ns;    // CLOCK_MONOTONIC: when the last one began
  // That the program expects to make in all, beginning with the first; 0: it does not say, or its
  // shim is an older one.
  std::atomic<uint64_t> expected;

  // Written by the agent: when so many have begun, the next one waits; 0: none waits. `turn` is a
  // futex and changes whenever run_until does.
  alignas(64) std::atomic<uint64_t> run_until;
  std::atomic<uint32_t> turn;
  // Written by the shim: the number of threads that wait at the boundary, and since when any does.
  std::atomic<uint32_t> waiting;
  std::atomic<uint64_t> waiting_since_ns;  // CLOCK_MONOTONIC; 0: none waits
};

// Written by the shim. Each thread counts in its own stripe while there are enough, so that threads
// do not share a cache line.
struct alignas(64) ShimStripe {
  std::atomic<uint64_t> launches;  // counted before the launch passes the gate
  uint64_t reserved[7];
};

// Written by the shim: how long the iterations took that have ended since the process has this slot
// (time_histogram.h), from begin to begin, or, where they are announced, from arrival to end.
struct ShimTimes {
  std::atomic<uint64_t> sum_us;
  std::atomic<uint32_t> counts[kTimeClasses];
};

struct ShimSlot {
  ShimHead head;

  // Written by the agent. The gate is a futex: odd means closed. Closing and opening add 1 each, so
  // that every state has its own number, and closing again what a thread has given up at adds 2.
  alignas(64) std::atomic<uint32_t> gate;
  uint32_t reserved_gate;
  std::atomic<uint64_t> beat_ns;  // CLOCK_MONOTONIC: when the agent was last known to be alive

  // Written by the shim.
  alignas(64) std::atomic<uint32_t> waiting;  // threads that wait at the gate
  std::atomic<uint32_t> seen_gate;            // the closed state at which a thread last stopped
  std::atomic<uint64_t> waited_ns;            // sum over all threads
  std::atomic<uint64_t> gave_up;  // waits that ended because the agent's beat had stopped

  alignas(64) ShimGpu gpus[kShimGpus];
  ShimStripe stripes[kShimStripes];
  ShimIterations iterations;
  // Constant: the directory of the MPS server whose client the process is to be, with a 0 at its
  // end; empty: none.
  char mps_pipe[kShimPathBytes];
  ShimSoon
      soon[kShimGpus];  // for each of `gpus`; an older shim ignores it, an older agent writes 0
  // Written by the shim, for each of `gpus`: launches in the whole GPU while a partition was
  // wanted.
  std::atomic<uint64_t> home_launches[kShimGpus];
  std::atomic<uint32_t> waits;  // by the shim: threads in a call that waits for work on a GPU
  ShimCredit credit;            // an older shim or agent ignores it
  // By the shim: how many launches there had been when the process said that it has done its work
  // (its last context is about to go, or the process); 0: it has not. With the next launch it
  // counts no more.
  std::atomic<uint64_t> done_at;
  // By the shim, for each of `gpus`.
  ShimDrain drains[kShimGpus];
  ShimNeeds needs[kShimGpus];
  // By the agent, for each of `gpus`: what the program is shown as its number of SMs, with the
  // feature kShimShown; 0: all that it has. Constant once the process has the slot.
  std::atomic<uint32_t> sms_shown[kShimGpus];
  ShimTimes times;  // an older shim leaves it 0
  uint8_t reserved[kShimSlotBytes - 3784 - sizeof(ShimTimes)];
};

// Launches by all threads of the process so far: kernels, graphs, and copies and fills on the GPU.
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
              offsetof(ShimSlot, credit) == 3136 && sizeof(ShimCredit) == 192 &&
              offsetof(ShimSlot, done_at) == 3328 && offsetof(ShimSlot, drains) == 3336 &&
              offsetof(ShimSlot, needs) == 3592 && offsetof(ShimSlot, sms_shown) == 3720 &&
              offsetof(ShimSlot, times) == 3784 && sizeof(ShimTimes) == 88 &&
              sizeof(ShimSlot) == kShimSlotBytes);

}  // namespace gpushare
