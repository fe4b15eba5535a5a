// SPDX-License-Identifier: Apache-2.0
// Gpu: everything that the agent may do to the machine's GPUs. It separates decisions from the
// driver: nvrm/rm_gpu drives the stock NVIDIA driver, sim/gpu/sim_gpu and sim/gpu/remote_gpu a
// simulated GPU, and the agent does not know which it has. No call blocks longer than the driver
// does (0.6 ms for a freeze of one program, driver-facts section 3; much longer while others hold
// the driver's lock). Threads: freeze(), thaw(), set_slice(), slice(), hardware_group() and
// searches for different processes may be called from several at once, and so may open(),
// read_switches() and utilisation() for different GPUs, and missing(); the others come from one
// thread, and may meet them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "intercept/event.h"
#include "shmctl/base/clock.h"
#include "shmctl/base/error.h"

namespace gpushare {

inline constexpr uint32_t kNoInstance = 0xFFFFFFFF;  // of a GPU that has not been opened yet

struct GpuInfo {
  uint32_t index = 0;         // its place in the list, from 0; all other calls name a GPU by it
  uint32_t instance = 0;      // RM device instance, as in DeviceCreated; or kNoInstance
  std::string uuid;           // "GPU-xxxxxxxx-...", empty if unknown
  std::string name;           // "NVIDIA H200"
  std::string pci;            // "0000:1b:00.0", empty if it has none
  uint32_t sm_count = 0;      // 0 means unknown
  uint64_t memory_bytes = 0;  // 0 means unknown
};

// Any object of the driver.
struct ObjectRef {
  uint32_t client = 0;
  uint32_t object = 0;
  auto operator<=>(const ObjectRef&) const = default;
};

// A channel group, with the owner's descriptor through which its slice is set.
struct GroupRef {
  ProcessId process;
  int fd = -1;
  uint32_t client = 0;
  uint32_t group = 0;
  bool operator==(const GroupRef&) const = default;
};

// One record of the hardware's context-switch log.
struct SwitchRecord {
  Time time{};            // converted to CLOCK_MONOTONIC
  uint32_t gpu = 0;       // GpuInfo::index
  pid_t pid = 0;          // 0 when the driver hides it or does not know it
  uint32_t context = 0;   // channel or group handle as the driver logs it
  bool is_start = false;  // true when the context came to the GPU, false when it left
};

struct SwitchBatch {
  std::vector<SwitchRecord> records;  // oldest first
  uint64_t lost = 0;                  // records overwritten before they were read
  Time complete_until{};  // every switch before this instant is in this or an earlier batch
  Time read_at{};         // no switch was later; zero: not known
};

// What the driver's own counters say of one process.
struct Utilisation {
  pid_t pid = 0;
  double sm_fraction = 0;  // 0 to 1: in what part of the time a kernel of it was on the SMs
};

// Of a GPU, since the sample before. It tells nothing new while `until` is not after `from`. How
// busy the GPU was is exact, whoever made it so, and has ended since. The driver looks five times a
// second, and gives all that the GPU did since its last look to the process that the GPU holds at
// that instant, which may have done nothing (bench/results/samples.jsonl and named.jsonl, H200).
struct UtilisationSample {
  Time from{}, until{};
  double busy = -1;  // 0 to 1: in what part of that time a kernel was on the SMs; < 0: not told
  std::vector<Utilisation> of{};
};

// What this driver lets the agent do. It never changes. A false member means that programs are only
// observed in that respect; `reason` says why.
struct GpuSupport {
  bool can_freeze = false;
  bool can_set_slice = false;
  bool has_switch_log = false;
  std::string driver_version;  // "580.159.04"; "sim" for the simulation
  std::string reason;          // empty when everything is supported
  // Another number each time that the driver is loaded, which gives its clients the same names
  // anew; 0: it is not known.
  uint64_t driver_load = 0;
};

// A search for the driver objects of one process. It runs in pieces, so that the caller can do
// other work in between.
class ObjectSearch {
 public:
  using Found = std::vector<DriverEvent>;
  virtual ~ObjectSearch() = default;
  // Continues for about `budget`, and makes some progress even with a budget of 0. Returns nullopt
  // while there is more to do; after an answer or an error the search is over and must not be
  // advanced. Error no_such_process when the process has ended.
  virtual Result<std::optional<Found>> advance(Nanos budget) = 0;
  // Valid after the answer: true if every object that the caller had named as known and that is not
  // in the answer is gone. Otherwise some of them could not be asked for, and may be there.
  virtual bool is_complete() const { return true; }
  // Continues to the end, however long that takes.
  Result<Found> finish();
};
// A search that has its answer already.
std::unique_ptr<ObjectSearch> found_at_once(Result<ObjectSearch::Found> found);

// A search for the processes that hold the driver open, in pieces as well: a process may hold
// hundreds of thousands of descriptors.
class UserSearch {
 public:
  virtual ~UserSearch() = default;
  // As ObjectSearch::advance(). The answer is in no order.
  virtual Result<std::optional<std::vector<pid_t>>> advance(Nanos budget) = 0;
};
std::unique_ptr<UserSearch> users_at_once(Result<std::vector<pid_t>> users);

// What is known of a GPU once it is open.
struct OpenedGpu {
  GpuInfo info;
  std::string no_log_reason{};  // why its switch log cannot be read; empty: it can
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  // All that the machine has, in an order that is the same for all who drive it: what the ledger
  // lists of a GPU is undone by others under the same number. Of one that is not open only the
  // index is known.
  virtual std::span<const GpuInfo> gpus() const = 0;
  // Opens a GPU, which may take seconds, or hang. Nothing changes for who uses the others, and
  // gpus() stays as it is. May be called for different GPUs on several threads at once, and beside
  // all other calls; doing it again is cheap. Error: the driver refuses, or there is no such GPU.
  virtual Result<OpenedGpu> open(uint32_t gpu);
  // Why nothing may be asked of this GPU now, in words that follow "GPU 3 "; empty: it may be. One
  // thread calls it, the scheduler's.
  virtual std::string closed_because(uint32_t) const { return {}; }
  virtual const GpuSupport& support() const = 0;
  // False for a class of channels whose behaviour when frozen is not known; the agent must not
  // touch such channels.
  virtual bool knows_channel_class(uint32_t class_id) const = 0;

  // Stop and resume the channels, also in the middle of a kernel. The driver counts: as many thaws
  // as freezes are needed, and a thaw too many is harmless. When freeze() returns, the GPU has
  // stopped them. There may be any number of channels: calls of more than 64 are split. On a
  // failure in the middle, freeze() undoes what it did, and thaw() continues and reports the first
  // error. A channel that is gone because its process died is no error for thaw().
  virtual Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) = 0;
  virtual Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) = 0;

  // Set and read the time slice of one channel group. `slice` is at least 1 us; a group with 1 us
  // gets only the time that no other wants. Error no_such_process when the owner is gone, and with
  // it every process in which a search has found its client; operation_not_permitted when the
  // driver refuses.
  virtual Result<> set_slice(const GroupRef& group, Micros slice) = 0;
  virtual Result<Micros> slice(const GroupRef& group) = 0;
  // The hardware's number of the group, which is unique on its GPU. Clients of one MPS server hold
  // the same group under handles of their own: they run at the same time, have one slice, and a
  // freeze of one stops them all. Errors as set_slice().
  virtual Result<uint32_t> hardware_group(const GroupRef& group) = 0;

  // Stop and resume the process itself, when its channels cannot be frozen alone: it launches
  // nothing more, and its kernel in progress runs to its end. These calls are not counted. Error
  // no_such_process when it is gone.
  virtual Result<> stop(const ProcessId& process) = 0;
  virtual Result<> resume(const ProcessId& process) = 0;

  // Returns what was logged since the last call, which takes 12 us on an H200; call it every tick.
  virtual Result<SwitchBatch> read_switches(uint32_t gpu) = 0;

  // nullopt when this machine cannot tell, because it has no NVML or gives no permission. An H200
  // has something new each 200 ms; the mean of the time since the call before, a second at most, is
  // within 1 % of what a program did that was alone (bench/results/samples.jsonl).
  virtual std::optional<UtilisationSample> utilisation(uint32_t gpu) = 0;

  // Finds the objects of a process that opened the driver before an observer was there. The answer
  // are the events that would have been seen, ProcessOpened first; none when it has no objects.
  // Takes 5 ms for a CUDA program on an H200, and up to 0.2 s for one whose client is very old or
  // gone. While the search lives, the driver may not free the memory of a process that ends.
  // Objects `known` are asked for by their names; others are found only where a program usually has
  // them. A process that inherited a descriptor from another one is answered as its owner is, so
  // the same client may be found in several processes.
  virtual std::unique_ptr<ObjectSearch> attach(pid_t pid, std::span<const ObjectRef> known) = 0;
  std::unique_ptr<ObjectSearch> attach(pid_t pid) { return attach(pid, {}); }
  // The processes that hold the driver open now. Error: they cannot be listed now. The first form
  // takes as long as reading all of /proc does; the second one is for the agent.
  virtual Result<std::vector<pid_t>> users() const = 0;
  virtual std::unique_ptr<UserSearch> find_users() const { return users_at_once(users()); }
  // Those of these objects (a client is one of its own) that the driver does not have any more.
  // It knows them by their names alone, whoever may use them now, and asks no GPU. Error
  // not_supported: this driver does not tell; others: it cannot be said now.
  virtual Result<std::vector<ObjectRef>> missing(std::span<const ObjectRef>) {
    return make_error(std::errc::not_supported, "ask for objects");
  }
};

}  // namespace gpushare
