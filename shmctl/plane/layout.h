// SPDX-License-Identifier: Apache-2.0
// The binary layout of the control plane: one region of POSIX shared memory that the agent writes.
// The tools read it, and so does the supervisor when the agent has died. Every offset stands in
// shmctl/LAYOUT.md and is asserted below. Members have fixed widths and none is a pointer; a
// program of another build refuses the region by its version or size.
//
// Records are plain values that are copied in and out whole through slots (slots.h), so that a
// reader never sees half a record and never blocks the agent. Token buckets lie beside the records
// because several processes may update them in place at any moment. A region whose bytes behind the
// header are all zero is a valid empty one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shmctl/plane/slots.h"
#include "shmctl/plane/token_bucket.h"
#include "shmctl/shim/time_histogram.h"

namespace gpushare {

inline constexpr uint64_t kMagic = 0x3145524148535047;  // "GPSHARE1", little endian
inline constexpr uint32_t kLayoutVersion = 16;
// Rises when a Slot<LedgerRecord> looks different. Whoever finds a region of another layout can
// read the ledger of it that has this format (ControlPlane::copy_ledger()).
inline constexpr uint32_t kLedgerFormat = 1;
inline constexpr uint32_t kMaxGpus = 16;
inline constexpr uint32_t kMaxTenants = 1024;
inline constexpr uint32_t kMaxProcesses = 2048;         // slots; one per process and GPU
inline constexpr uint32_t kMaxLedger = 2048;            // entries; one or more per channel group
inline constexpr uint32_t kLedgerChannels = 64;         // channels in one ledger entry
inline constexpr uint32_t kMaxRosterProcesses = 16384;  // processes that the roster names
inline constexpr uint32_t kMaxRosterScopes = 512;       // scopes that the roster names
inline constexpr uint32_t kMaxOwners = 4096;            // entries; one or more per process
inline constexpr uint32_t kOwnerClients = 16;           // clients of the driver in one entry
inline constexpr uint32_t kMaxWaiting = 64;  // runs that wait for a GPU; further ones are not shown
inline constexpr uint32_t kUnknown32 = 0xFFFFFFFF;  // means "not known", never shown as 0
inline constexpr uint64_t kUnknown64 = 0xFFFFFFFFFFFFFFFF;
inline constexpr uint32_t kHistory = 60;  // samples of a share, one a second, the newest last

enum class Priority : uint32_t { kIdle = 0, kNormal = 1, kHigh = 2 };

// What a tenant says that its iterations are, of a language model's work.
enum class TenantPhase : uint32_t {
  kAuto = 0,     // what each of its processes shows
  kPrefill = 1,  // they read prompts
  kDecode = 2,   // they write tokens
  kNone = 3,     // neither
};

// Whether a tenant's work on several GPUs is a gang, which has its time on all of them at once.
enum class TenantGang : uint32_t {
  kAuto = 0,   // as the file says of jobs ([agent] gangs)
  kTrue = 1,   // all of its processes together are one
  kFalse = 2,  // nothing of it is
};

enum class ProcessState : uint32_t {
  kIdle = 0,         // it has a context and nothing to run
  kRunning = 1,      // it has the GPU alone, or gets its turns
  kWaiting = 2,      // it has work and got no turn lately
  kFrozenCap = 3,    // it is frozen because its tenant's bucket has no tokens
  kFrozenTurn = 4,   // it is frozen because it is another process's turn
  kFrozenUser = 5,   // `gpushare freeze` froze it
  kObserveOnly = 6,  // the driver refused a control of it; see `note`
};

// How tenants share a GPU: in turns; each in its own part of the SMs; or in parts of the SMs whose
// sizes follow the tenants' target times.
enum class GpuSharing : uint32_t { kTime = 0, kSpatial = 1, kSlo = 2 };

// What a policy for target times, `slo` or `tpot`, decided for a tenant on a GPU, and why.
enum class SloState : uint32_t {
  kNone = 0,        // no such policy runs there, or the tenant has no process there
  kRest = 1,        // it has no target and gets a part, by weight, of what the others leave
  kUnmeasured = 2,  // it has a target, and no iterations of it were counted yet
  kMeets = 3,       // it meets its target
  kGrows = 4,       // it missed its target and has got more SMs
  kShrinks = 5,     // it had more SMs than it needs and has fewer now
  kStarved = 6,     // it needs more SMs than there are
  kAtMost = 7,  // it misses its target on the most SMs that help it (its knee) or that it may have
  kSampling = 8,  // its knee is being measured
  kYields = 9,    // it reads prompts and has what decoding leaves
  kHeld = 10,     // its next prompts wait, because tokens are late
  kEven = 11,     // a prompt has waited for half of its target: prompts and tokens get equal parts
};

// Where a job is. Its GPUs take turns if the policy of one orders jobs.
enum class TurnState : uint32_t {
  kFree = 0,      // it runs as it likes: its GPUs do not take turns
  kQueued = 1,    // it is not admitted yet
  kHeld = 2,      // it stands between two iterations, or before its next launch
  kRunning = 3,   // it has the turn
  kStopping = 4,  // it is to stop, and goes on until it stands
  kStopped = 5,   // it is frozen where it was
};

struct AgentRecord {
  uint32_t agent_pid = 0;       // 0 when no agent runs
  uint32_t supervisor_pid = 0;  // 0 when there is none
  uint64_t started_ns = 0;      // CLOCK_MONOTONIC, as every instant that ends in _ns
  uint64_t published_ns = 0;    // when this was written; an old time means a stuck or dead agent
  uint64_t ticks = 0;           // ticks of the agent since it started
  uint64_t events = 0;          // DriverEvents that it has seen
  uint64_t events_dropped = 0;  // events that were lost in the probe's buffer
  uint64_t restarts = 0;        // how often the supervisor started the agent again
  uint32_t gpu_count = 0;
  uint32_t is_simulated = 0;  // this and the next ones: 0 or 1
  uint32_t tick_us = 0;       // length of the present tick
  uint32_t can_freeze = 0, can_set_slice = 0, has_switch_log = 0;
  uint32_t are_tenants_in_sysfs = 0;  // 1: the kernel module has them, this record mirrors them
  uint32_t false_claims = 0;  // of objects of the driver, by processes that do not have them
  char driver_version[32] = {};
  char policy[16] = {};
  // NVIDIA's MPS, for the GPUs that are shared spatially.
  uint32_t mps_pid = 0;                // the control daemon; 0 when there is none
  uint32_t mps_state = 0;              // MpsState, in sched/mps/plan.h
  uint32_t mps_clients = 0;            // clients of its servers
  uint32_t mps_faults = 0;             // faults that ended clients, since the agent started
  char observe_only_reason[128] = {};  // empty when everything is enforced
  uint32_t interferences = 0;          // freezes and slices of a process by another, undone
  uint32_t reserved = 0;
};

struct GpuRecord {
  uint32_t index = 0;                   // the agent's number of it, 0 to kMaxGpus - 1
  uint32_t instance = 0;                // the driver's number of it
  uint32_t sm_count = kUnknown32;       // streaming multiprocessors
  uint32_t busy_permille = kUnknown32;  // busy part of the last second
  uint32_t switches_per_s = kUnknown32;
  uint32_t process_count = 0;
  uint32_t tenant_count = 0;  // tenants that have a process on it
  GpuSharing sharing = GpuSharing::kTime;
  uint64_t memory_bytes = kUnknown64;
  uint64_t memory_used_bytes = kUnknown64;  // held by the processes that the agent knows
  uint64_t log_records = 0;                 // switch log records read since the agent started
  uint64_t log_lost = 0;                    // switch log records lost since then
  char uuid[48] = {};
  char name[64] = {};
  char pci[16] = {};
  char policy[16] = {};
  // Turns of jobs. A gap is the time from the instant at which one job stood to the begin of the
  // next one's first iteration; the quantiles are of the last 512.
  uint64_t gaps = 0;         // seen since the agent started
  uint64_t gaps_missed = 0;  // hand-overs whose gap could not be seen
  uint32_t gap_p50_us = kUnknown32;
  uint32_t gap_p99_us = kUnknown32;
};

struct TenantGpuUse {
  uint64_t gpu_time_ns = 0;               // GPU time since the tenant was made
  uint32_t share_permille = kUnknown32;   // measured share of the last second
  uint32_t target_permille = kUnknown32;  // the share that the policy aims at now
  uint32_t sms_entitled = kUnknown32;     // SMs of its partition; unknown when it has none
  uint32_t sms_in_use = kUnknown32;       // the same with what it borrows, without what it lends
  // From here on `slo` and `tpot` fill the members; they are unknown where it does not run, or
  // where nothing was measured yet.
  SloState slo_state = SloState::kNone;
  uint32_t slo_us = kUnknown32;      // target in force: the tenant's own, otherwise its program's
  uint32_t latency_us = kUnknown32;  // mean time of an iteration in the last round
  uint32_t p99_us = kUnknown32;      // 99th percentile of the recent iterations
  uint32_t iterations_per_ks = kUnknown32;  // iterations in 1000 s
  uint32_t iteration_source = 0;            // ShimSource
  uint32_t confidence_permille = kUnknown32;
  uint32_t sms_knee = kUnknown32;  // the fewest SMs beyond which more do not help it
  uint32_t sms_needed =
      kUnknown32;  // SMs for its target, or for the targets of all that share them
  // How many tenants have this partition together; 1 when it is alone, unknown when it has none.
  uint32_t sms_sharers = kUnknown32;
  uint32_t sms_set = kUnknown32;  // tenants with the same number on a GPU have the same SMs
  // ShimFollows: what keeps a program of it from moving to its partition. kUnknown and kFollows
  // mean that nothing is known to.
  uint32_t sms_follows = 0;
  uint32_t phase = 0;  // ShimPhase: what its processes do of a language model's work; 0: neither
  uint32_t reserved = 0;
};

struct TenantRecord {
  char name[64] = {};  // [a-zA-Z0-9_.-]+, at most 63 characters
  uint32_t weight = 100;
  Priority priority = Priority::kNormal;
  uint64_t quota_us = kUnknown64;  // kUnknown64 means no cap ("max")
  uint64_t period_us = 100000;
  uint64_t memory_max_bytes = kUnknown64;  // kUnknown64 means "max"
  uint32_t sm_percent = kUnknown32;        // kUnknown32 means "max"
  uint32_t slo_us = 0;                     // target time of an iteration; 0 means none
  uint32_t process_count = 0;
  uint32_t frozen_by_user = 0;  // 1 after `gpushare freeze`
  uint64_t throttled_ns = 0;    // time that its processes were frozen by its cap
  uint64_t freezes = 0;         // how often its processes were frozen
  uint64_t memory_bytes = 0;    // GPU memory that its processes hold
  uint64_t length_us = 0;       // GPU time of one of its jobs, alone; 0 means unknown
  uint64_t iterations = 0;      // of one of its jobs in all; 0 means unknown
  TenantPhase phase = TenantPhase::kAuto;
  TenantGang gang = TenantGang::kAuto;
  uint32_t sm_min = 0;    // percent; 0 means none
  uint32_t sm_shown = 0;  // 1: its programs are shown their partition
  // Time for which any of its processes was frozen because it was another's turn, and because a
  // user froze it.
  uint64_t frozen_turn_ns = 0;
  uint64_t frozen_user_ns = 0;
  // Turns that its jobs had, and time for which any of them wanted a GPU and waited for its turn.
  uint64_t turns = 0;
  uint64_t held_ns = 0;
  // Of the iterations of its processes with the shim: the sum of their times, and how many were in
  // each class of time_histogram.h.
  uint64_t iteration_us = 0;
  uint64_t iteration_counts[kTimeClasses] = {};
  TenantGpuUse gpu[kMaxGpus] = {};
};

struct ProcessRecord {
  int32_t pid = 0;           // in the agent's pid namespace; 0 marks a free slot
  int32_t ns_pid = 0;        // in the process's own pid namespace
  uint64_t start_ticks = 0;  // ProcessId::start_ticks
  uint32_t uid = 0;
  uint32_t gpu = 0;     // GpuRecord::index
  uint32_t tenant = 0;  // slot of its tenant
  ProcessState state = ProcessState::kIdle;
  uint64_t cgroup_id = 0;
  uint32_t slice_us = kUnknown32;
  uint32_t target_permille = kUnknown32;
  uint32_t share_permille = kUnknown32;  // measured share of the last second
  uint32_t is_late_attach = 0;           // 1 when it ran before the agent started
  int64_t tokens_ns = 0;                 // valid when has_bucket is 1; negative after an overdraft
  uint32_t has_bucket = 0;
  uint32_t switches_per_s = kUnknown32;
  uint64_t gpu_time_ns = 0;
  uint64_t memory_bytes = 0;
  uint64_t freezes = 0;
  uint64_t throttled_ns = 0;
  uint64_t state_since_ns = 0;
  char command[16] = {};
  char command_line[128] = {};
  char note[96] = {};  // why it is only observed, is frozen, or waits for its turn
  uint16_t history_permille[kHistory] = {};  // 0xFFFF means unknown
  // Of the job that it belongs to, where the GPU takes turns.
  uint64_t job = 0;                   // unique for the life of the agent; 0: none
  uint64_t job_arrived_ns = 0;        // when it was asked for, or first seen
  uint64_t job_service_ns = 0;        // GPU time that it has received
  uint64_t job_left_us = kUnknown64;  // GPU time that it still needs
  uint64_t job_iterations = 0;        // that have ended
  uint64_t turn_since_ns = 0;         // since when it runs, or has been waiting
  uint32_t run = 0;          // number of the `gpushare run` that started it; 0: the job is itself
  uint32_t job_place = 0;    // in the order of the GPU, from 1 on; 0: none
  uint32_t job_left_by = 0;  // how it is known what is left: LeftSource, in sched/policy/job.h
  TurnState turn = TurnState::kFree;
};

// A run that waits for a GPU on which its memory fits (`gpushare run --gpu`).
struct WaitingRecord {
  int32_t pid = 0;  // 0 in a free entry
  uint32_t uid = 0;
  uint64_t start_ticks = 0;
  uint64_t since_ns = 0;            // when it first asked
  uint64_t memory_bytes = 0;        // that it needs on the GPU
  uint64_t length_us = kUnknown64;  // GPU time that it needs
  uint32_t gpu = kUnknown32;        // that it asked for; unknown: any
  uint32_t reserved = 0;
  char command[128] = {};  // empty where it is nobody else's business
  char why[96] = {};
};

// What was done to one channel group and must be undone if the agent dies. An entry is complete
// before the driver is asked; ledger.h has the steps.
struct LedgerRecord {
  int32_t pid = 0;  // 0 marks a free entry
  int32_t fd = -1;  // the owner's descriptor, for slice controls
  uint64_t start_ticks = 0;
  uint32_t gpu = 0;
  uint32_t client = 0;
  uint32_t group = 0;
  uint32_t slice_changed = 0;  // 1 when original_slice_us must be restored
  uint32_t original_slice_us = 0;
  uint32_t freezes = 0;                     // freezes that were intended or done and not yet thawed
  uint32_t channel_count = 0;               // channels in this entry, at most kLedgerChannels
  uint32_t part = 0;                        // n has the channels from n * kLedgerChannels on
  uint32_t channels[kLedgerChannels] = {};  // handles under `client`
};

// How the last agent ended.
enum class EndingKind : uint32_t {
  kNone = 0,        // none has ended yet, or nobody was left to see it
  kStopped = 1,     // it was asked to stop, and undid everything itself
  kHandedOver = 2,  // it was asked to make way for the next agent
  kExited = 3,      // it gave up; `code` is its exit code
  kSignalled = 4,   // `code` is the signal that ended it
};

// Written by the agent that stops, and by its supervisor when it has died.
struct EndingRecord {
  uint32_t agent_pid = 0;
  EndingKind kind = EndingKind::kNone;
  uint32_t code = 0;  // of kExited and kSignalled
  uint32_t reserved = 0;
  uint64_t ended_ns = 0;  // when it was written
};

// The roster (roster.h): what was set at run time, so that the next agent goes on with it.
struct RosterHead {
  uint32_t are_tenants_in_sysfs = 0;  // 1: the kernel module keeps tenants and memberships
  uint32_t module_instance = 0;       // as sysfs `instance` showed it then; 0: it was not known

  bool operator==(const RosterHead&) const = default;
};

inline constexpr uint32_t kRosterKept = 1;        // of a tenant: made or changed at run time
inline constexpr uint32_t kRosterTransient = 2;   // of a tenant: it goes with its last process
inline constexpr uint32_t kRosterFrozen = 4;      // of a tenant or a process: by the user
inline constexpr uint32_t kRosterAttached = 8;    // of a process: it belongs to `tenant`
inline constexpr uint32_t kRosterInherited = 16;  // of a process: only by its parent
inline constexpr uint32_t kRosterRun = 32;        // of a process: it belongs to `run`

// A tenant, in the slot that it has in `tenants`. Settings that were not set at run time have the
// values of TenantRecord{}.
struct RosterTenant {
  char name[64] = {};  // empty in a free entry
  uint32_t flags = 0;  // kRosterKept, kRosterTransient, kRosterFrozen
  uint32_t set = 0;    // bit n: setting n of kmod/uapi/settings.h was set at run time
  uint32_t weight = 100;
  Priority priority = Priority::kNormal;
  uint64_t quota_us = kUnknown64;
  uint64_t period_us = 100000;
  uint64_t memory_max_bytes = kUnknown64;
  uint32_t sm_percent = kUnknown32;
  uint32_t slo_us = 0;
  uint64_t length_us = 0;
  uint64_t iterations = 0;
  TenantPhase phase = TenantPhase::kAuto;
  TenantGang gang = TenantGang::kAuto;
  uint32_t sm_min = 0;    // percent; 0 means none
  uint32_t sm_shown = 0;  // 1: its programs are shown their partition
  bool operator==(const RosterTenant&) const = default;
};

// A process that was attached to a tenant, or inherited that, or is of a run, or is frozen by the
// user. It need not be on a GPU.
struct RosterProcess {
  int32_t pid = 0;      // 0 in a free entry
  uint32_t tenant = 0;  // slot; only with kRosterAttached
  uint64_t start_ticks = 0;
  uint32_t flags = 0;  // kRosterAttached, kRosterInherited, kRosterFrozen, kRosterRun
  uint32_t run = 0;    // number of the `gpushare run` that started it; only with kRosterRun
  bool operator==(const RosterProcess&) const = default;
};

// A cgroup of which all processes belong to a tenant, until it is empty.
struct RosterScope {
  char cgroup[232] = {};  // its path below the root of the cgroups; empty in a free entry
  uint32_t tenant = 0;    // slot
  uint32_t reserved = 0;
};

// The owners (owner_list.h): which processes on the GPUs have which clients of the driver, so that
// an agent that comes when they have ended knows whose their work was.
struct OwnersHead {
  uint64_t driver_load = 0;  // GpuSupport::driver_load, when they were noted
};

struct OwnerRecord {
  int32_t pid = 0;   // 0 in a free entry
  uint32_t uid = 0;  // of the rules: the user's who started it
  uint64_t start_ticks = 0;
  uint32_t run = 0;  // number of the `gpushare run` that started it; 0: none
  uint32_t reserved = 0;
  uint64_t job_arrived_ns = 0;  // of its job, where its GPU takes turns; 0: it has none
  uint64_t job_service_ns = 0;
  // By name, as its slot may be another's by then; empty: that in which the roster has it.
  char tenant[64] = {};
  char command[16] = {};
  char command_line[128] = {};
  uint32_t clients[kOwnerClients] = {};  // the driver's names of them; 0: none
};

// Written once, before the region gets its name. Only `publication` changes after that. Every
// version has these members at these places.
struct RegionHeader {
  uint64_t magic;
  uint32_t version;       // kLayoutVersion
  uint32_t header_bytes;  // sizeof(RegionHeader)
  uint64_t region_bytes;  // sizeof(Region)
  uint32_t max_gpus, max_tenants, max_processes, max_ledger;
  uint64_t created_ns;
  std::atomic<uint64_t> publication;  // odd while the agent writes a tick's records (snapshot.h)
  uint32_t ledger_format;  // kLedgerFormat; 0 in regions of versions that did not write it
  uint32_t ledger_offset;  // where its `max_ledger` entries begin
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
  Slot<EndingRecord> ending;
  Slot<RosterHead> roster;
  Slot<RosterTenant> roster_tenants[kMaxTenants];
  Slot<RosterProcess> roster_processes[kMaxRosterProcesses];
  Slot<RosterScope> roster_scopes[kMaxRosterScopes];
  Slot<WaitingRecord> waiting[kMaxWaiting];  // in the order in which they asked
  Slot<OwnersHead> owners;
  Slot<OwnerRecord> owner_entries[kMaxOwners];
};

// A change of any of these needs a new kLayoutVersion, and one of LedgerRecord or of Slot a new
// kLedgerFormat as well; the header keeps what it has. tests/shmctl/plane/layout_test.cc checks the
// members of the records.
static_assert(sizeof(AgentRecord) == 288 && sizeof(GpuRecord) == 232);
static_assert(sizeof(TenantRecord) == 1648 && sizeof(ProcessRecord) == 536);
static_assert(sizeof(LedgerRecord) == 304 && sizeof(RegionHeader) == 64);
static_assert(sizeof(TenantSlot) == 4352 && offsetof(TenantSlot, buckets) == 3328);
static_assert(sizeof(ProcessSlot) == 1152 && offsetof(ProcessSlot, bucket) == 1088);
static_assert(offsetof(Region, agent) == 64 && offsetof(Region, gpus) == 704);
static_assert(offsetof(Region, tenants) == 8896 && offsetof(Region, processes) == 4465344);
static_assert(offsetof(Region, ledger) == 6824640 && offsetof(Region, ending) == 8135360);
static_assert(sizeof(EndingRecord) == 24 && sizeof(RosterHead) == 8);
static_assert(sizeof(RosterTenant) == 144 && sizeof(RosterProcess) == 24);
static_assert(offsetof(Region, roster) == 8135424 && offsetof(Region, roster_tenants) == 8135488);
static_assert(sizeof(RosterScope) == 240 && offsetof(Region, roster_processes) == 8463168);
static_assert(offsetof(Region, roster_scopes) == 9511744 && sizeof(WaitingRecord) == 272);
static_assert(offsetof(Region, waiting) == 9773888 && sizeof(OwnersHead) == 8);
static_assert(offsetof(Region, owners) == 9810752 && sizeof(OwnerRecord) == 312);
static_assert(offsetof(Region, owner_entries) == 9810816 && sizeof(Region) == 12432256);

}  // namespace gpushare
