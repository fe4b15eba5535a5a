// SPDX-License-Identifier: Apache-2.0
// The control plane's binary layout: one region of POSIX shared memory, written by the agent (and,
// per slot, by a tenant's own shim), read by the tools, and by the supervisor when the agent has
// died. Every offset stands in shmctl/LAYOUT.md and is asserted below. Fixed-width members only;
// nothing here is a pointer; a reader of another build refuses on version or size.
//
// Records are plain values, copied in and out whole through slots (slots.h), so that a reader never
// sees half a record and never blocks the agent. Token buckets lie beside the records, because they
// are updated in place, by several processes, at any moment. A region of zero bytes after the
// header is a valid empty one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shmctl/plane/slots.h"
#include "shmctl/plane/token_bucket.h"

namespace gpushare {

inline constexpr uint64_t kMagic = 0x3145524148535047;  // "GPSHARE1", little endian
inline constexpr uint32_t kLayoutVersion = 6;
inline constexpr uint32_t kMaxGpus = 16;
inline constexpr uint32_t kMaxTenants = 1024;
inline constexpr uint32_t kMaxProcesses = 2048;     // one slot per process and GPU
inline constexpr uint32_t kMaxLedger = 2048;        // one entry per channel group
inline constexpr uint32_t kLedgerChannels = 64;     // channels in one ledger entry
inline constexpr uint32_t kUnknown32 = 0xFFFFFFFF;  // "not known", never shown as 0
inline constexpr uint64_t kUnknown64 = 0xFFFFFFFFFFFFFFFF;
inline constexpr uint32_t kHistory = 60;  // samples of the share, one a second, newest last

enum class Priority : uint32_t { kIdle = 0, kNormal = 1, kHigh = 2 };

enum class ProcessState : uint32_t {
  kIdle = 0,         // has a context, nothing to run
  kRunning = 1,      // has the GPU alone, or gets its turns
  kWaiting = 2,      // wants the GPU, got no turn lately
  kFrozenCap = 3,    // out of tokens
  kFrozenTurn = 4,   // idle-class, another one's turn
  kFrozenUser = 5,   // `gpushare freeze`
  kObserveOnly = 6,  // a control was refused; see note
};

// How tenants share a GPU: by turns; each in its part of the SMs; or in parts that follow target
// times.
enum class GpuSharing : uint32_t { kTime = 0, kSpatial = 1, kSlo = 2 };

// What the policy `slo` makes of a tenant on a GPU, and why it has what it has.
enum class SloState : uint32_t {
  kNone = 0,        // no such policy there, or no process
  kRest = 1,        // no target: a part by weight of what the others leave
  kUnmeasured = 2,  // a target, but no iterations that can be counted yet
  kMeets = 3,
  kGrows = 4,     // missed its target, has got more
  kShrinks = 5,   // had more than it needs
  kStarved = 6,   // needs more than there is
  kAtMost = 7,    // misses its target on the most that helps (its knee) or that it may have
  kSampling = 8,  // its knee is being looked for
};

struct AgentRecord {
  uint32_t agent_pid = 0;       // 0: no agent
  uint32_t supervisor_pid = 0;  // 0: none
  uint64_t started_ns = 0;      // CLOCK_MONOTONIC, all *_ns instants alike
  uint64_t published_ns = 0;    // when this was written; old means the agent is stuck or gone
  uint64_t ticks = 0;
  uint64_t events = 0;          // DriverEvents seen
  uint64_t events_dropped = 0;  // lost in the probe's buffer
  uint64_t restarts = 0;        // times the supervisor started the agent again
  uint32_t gpu_count = 0;
  uint32_t is_simulated = 0;
  uint32_t tick_us = 0;  // present tick
  uint32_t can_freeze = 0, can_set_slice = 0, has_switch_log = 0;
  uint32_t are_tenants_in_sysfs = 0;  // the kernel module's: this record only mirrors them
  uint32_t reserved = 0;
  char driver_version[32] = {};
  char policy[16] = {};
  // NVIDIA's MPS for the GPUs that are shared spatially.
  uint32_t mps_pid = 0;                // of the control daemon; 0: there is none
  uint32_t mps_state = 0;              // MpsState, in sched/mps/plan.h
  uint32_t mps_clients = 0;            // of its servers
  uint32_t mps_faults = 0;             // that ended clients, since the agent started
  char observe_only_reason[136] = {};  // empty: everything is enforced
};

struct GpuRecord {
  uint32_t index = 0;
  uint32_t instance = 0;
  uint32_t sm_count = kUnknown32;
  uint32_t busy_permille = kUnknown32;  // of the last second
  uint32_t switches_per_s = kUnknown32;
  uint32_t process_count = 0;
  uint32_t tenant_count = 0;  // tenants with a process on it
  GpuSharing sharing = GpuSharing::kTime;
  uint64_t memory_bytes = kUnknown64;
  uint64_t memory_used_bytes = kUnknown64;  // by the processes we know
  uint64_t log_records = 0;                 // read since the start
  uint64_t log_lost = 0;
  char uuid[48] = {};
  char name[64] = {};
  char pci[16] = {};
};

struct TenantGpuUse {
  uint64_t gpu_time_ns = 0;               // since the tenant was made
  uint32_t share_permille = kUnknown32;   // measured, last second
  uint32_t target_permille = kUnknown32;  // what the policy wants now
  uint32_t sms_entitled = kUnknown32;     // its part of the SMs; unknown: it has none
  uint32_t sms_in_use = kUnknown32;       // with what it borrows, without what it lends
  // Of the policy `slo`; unknown where it does not run, or nothing was measured.
  SloState slo_state = SloState::kNone;
  uint32_t slo_us = kUnknown32;      // in force: the tenant's own, else what its program asks for
  uint32_t latency_us = kUnknown32;  // mean of an iteration, of the last round
  uint32_t p99_us = kUnknown32;      // of the recent past
  uint32_t iterations_per_ks = kUnknown32;  // in 1000 s
  uint32_t iteration_source = 0;            // ShimSource
  uint32_t confidence_permille = kUnknown32;
  uint32_t sms_knee = kUnknown32;    // more does not help it
  uint32_t sms_needed = kUnknown32;  // for its target; for those of all that share its SMs
  // Tenants that have these SMs together; 1: it alone; unknown: it has no part.
  uint32_t sms_sharers = kUnknown32;
  uint32_t sms_set = kUnknown32;  // those with the same number on a GPU have the same SMs
  // ShimFollows: what keeps a program of it from going where it is told; kUnknown, kFollows:
  // nothing that is known.
  uint32_t sms_follows = 0;
};

struct TenantRecord {
  char name[64] = {};  // [a-zA-Z0-9_.-]+, at most 63
  uint32_t weight = 100;
  Priority priority = Priority::kNormal;
  uint64_t quota_us = kUnknown64;  // kUnknown64: no cap ("max")
  uint64_t period_us = 100000;
  uint64_t memory_max_bytes = kUnknown64;  // kUnknown64: "max"
  uint32_t sm_percent = kUnknown32;        // kUnknown32: "max"
  uint32_t slo_us = 0;                     // 0 none
  uint32_t process_count = 0;
  uint32_t frozen_by_user = 0;
  uint64_t throttled_ns = 0;
  uint64_t freezes = 0;
  uint64_t memory_bytes = 0;
  TenantGpuUse gpu[kMaxGpus] = {};
};

struct ProcessRecord {
  int32_t pid = 0;  // 0: free slot
  int32_t ns_pid = 0;
  uint64_t start_ticks = 0;
  uint32_t uid = 0;
  uint32_t gpu = 0;
  uint32_t tenant = 0;  // slot of its tenant
  ProcessState state = ProcessState::kIdle;
  uint64_t cgroup_id = 0;
  uint32_t slice_us = kUnknown32;
  uint32_t target_permille = kUnknown32;
  uint32_t share_permille = kUnknown32;  // measured over the last second
  uint32_t is_late_attach = 0;           // was there before the agent
  int64_t tokens_ns = 0;                 // valid when has_bucket
  uint32_t has_bucket = 0;
  uint32_t switches_per_s = kUnknown32;
  uint64_t gpu_time_ns = 0;
  uint64_t memory_bytes = 0;
  uint64_t freezes = 0;
  uint64_t throttled_ns = 0;
  uint64_t state_since_ns = 0;
  char command[16] = {};
  char command_line[128] = {};
  char note[96] = {};                        // why observe only
  uint16_t history_permille[kHistory] = {};  // 0xFFFF unknown
};

// What was done to one channel group and must be undone if we die. Written ahead: an entry is
// complete before the driver is asked. See ledger.h for the steps.
struct LedgerRecord {
  int32_t pid = 0;  // 0: free entry
  int32_t fd = -1;  // the owner's descriptor for slice controls
  uint64_t start_ticks = 0;
  uint32_t gpu = 0;
  uint32_t client = 0;
  uint32_t group = 0;
  uint32_t slice_changed = 0;  // 1: restore original_slice_us
  uint32_t original_slice_us = 0;
  uint32_t freezes = 0;                     // intended or done, not yet thawed
  uint32_t channel_count = 0;               // of this entry, at most kLedgerChannels
  uint32_t part = 0;                        // n: the group's channels from n * kLedgerChannels on
  uint32_t channels[kLedgerChannels] = {};  // handles under `client`
};

// Written once, before the region gets its name; but for `publication` constant ever after.
struct RegionHeader {
  uint64_t magic;
  uint32_t version;       // kLayoutVersion
  uint32_t header_bytes;  // sizeof(RegionHeader)
  uint64_t region_bytes;  // sizeof(Region)
  uint32_t max_gpus, max_tenants, max_processes, max_ledger;
  uint64_t created_ns;
  std::atomic<uint64_t> publication;  // odd: the agent is writing a tick's records (snapshot.h)
  uint64_t reserved;
};

struct TenantSlot {
  Slot<TenantRecord> record;
  TokenBucket buckets[kMaxGpus];  // the cap applies on each GPU
};

struct ProcessSlot {
  Slot<ProcessRecord> record;
  TokenBucket bucket;
};

struct Region {
  RegionHeader header;
  Slot<AgentRecord> agent;
  Slot<GpuRecord> gpus[kMaxGpus];
  TenantSlot tenants[kMaxTenants];
  ProcessSlot processes[kMaxProcesses];
  Slot<LedgerRecord> ledger[kMaxLedger];
};

// A change here is a new kLayoutVersion. The members of the records:
// tests/shmctl/plane/layout_test.cc.
static_assert(sizeof(AgentRecord) == 288 && sizeof(GpuRecord) == 192);
static_assert(sizeof(TenantRecord) == 1288 && sizeof(ProcessRecord) == 472);
static_assert(sizeof(LedgerRecord) == 304 && sizeof(RegionHeader) == 64);
static_assert(sizeof(TenantSlot) == 3648 && offsetof(TenantSlot, buckets) == 2624);
static_assert(sizeof(ProcessSlot) == 1024 && offsetof(ProcessSlot, bucket) == 960);
static_assert(offsetof(Region, agent) == 64 && offsetof(Region, gpus) == 704);
static_assert(offsetof(Region, tenants) == 7872 && offsetof(Region, processes) == 3743424);
static_assert(offsetof(Region, ledger) == 5840576 && sizeof(Region) == 7151296);

}  // namespace gpushare
