// SPDX-License-Identifier: Apache-2.0
// Gpu: everything the agent may do to the machine's GPUs. The seam between decisions and the
// driver: nvrm/rm_gpu drives the stock NVIDIA driver, sim/sim_gpu a simulated GPU, and the agent
// does not know which. All calls come from one thread; none blocks longer than the driver does (a
// freeze of one program about 0.6 ms, `driver-facts` section 3, measured on an H200).
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

struct GpuInfo {
  uint32_t index = 0;         // 0.. in the order of this list; what every other call names a GPU by
  uint32_t instance = 0;      // RM device instance, as in DeviceCreated
  std::string uuid;           // "GPU-xxxxxxxx-...", empty if unknown
  std::string name;           // "NVIDIA H200"
  std::string pci;            // "0000:1b:00.0", empty if none
  uint32_t sm_count = 0;      // 0 unknown
  uint64_t memory_bytes = 0;  // 0 unknown
};

struct ChannelRef {
  uint32_t client = 0;
  uint32_t channel = 0;
  bool operator==(const ChannelRef&) const = default;
};

// A channel group and the way to it: slices are set through the owner's own descriptor.
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
  pid_t pid = 0;          // 0: hidden or unknown to the driver
  uint32_t context = 0;   // channel or group handle as the driver logs it
  bool is_start = false;  // the context went on the GPU; else it went off
};

struct SwitchBatch {
  std::vector<SwitchRecord> records;  // oldest first
  uint64_t lost = 0;                  // records overwritten before they were read
  Time complete_until{};  // every switch before this instant is in this or an earlier batch
};

// What the driver's own counters say of one process; a sample of the last ~1 s.
struct Utilisation {
  pid_t pid = 0;
  uint32_t gpu = 0;
  double sm_fraction = 0;  // 0..1, part of the sample period with a kernel of it on the SMs
};

// What this driver lets us do; filled once. A false member means observe only, `reason` says why.
struct GpuSupport {
  bool can_freeze = false;
  bool can_set_slice = false;
  bool has_switch_log = false;
  std::string driver_version;  // "580.159.04"; "sim" for the simulation
  std::string reason;          // empty if all is supported
};

// A search for the driver objects of one process, in pieces: whoever asked has other work
// meanwhile.
class ObjectSearch {
 public:
  using Found = std::vector<DriverEvent>;
  virtual ~ObjectSearch() = default;
  // Goes on for about `budget`, and gets somewhere even with none. nullopt: there is more to do.
  // After an answer or an error it is over. no_such_process when the process has ended.
  virtual Result<std::optional<Found>> advance(Nanos budget) = 0;
  // To its end, however long that takes.
  Result<Found> finish();
};
// One that has its answer.
std::unique_ptr<ObjectSearch> found_at_once(Result<ObjectSearch::Found> found);

class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual std::span<const GpuInfo> gpus() const = 0;
  virtual const GpuSupport& support() const = 0;
  // Channels of a class it does not know must be left alone: a freeze may mean something else
  // there.
  virtual bool knows_channel_class(uint32_t class_id) const = 0;

  // Stops / resumes the channels, also in the middle of a kernel. The driver counts: as many thaws
  // as freezes are needed; a surplus thaw is harmless. On return of freeze() the GPU has stopped
  // them. Any number of channels; calls above 64 are split, and a failure in the middle undoes what
  // was done (freeze) or goes on and reports the first error (thaw). A channel that is gone (its
  // process died) is not an error for thaw().
  virtual Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) = 0;
  virtual Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) = 0;

  // Time slice of one channel group. `slice` >= 1 us; 1 us makes it strictly best effort.
  // Error no_such_process when the owner is gone, operation_not_permitted when the driver refuses.
  virtual Result<> set_slice(const GroupRef& group, Micros slice) = 0;
  virtual Result<Micros> slice(const GroupRef& group) = 0;
  // The hardware's number of the group, unique on its GPU. Clients of one MPS server hold the same
  // group under handles of their own: they run at the same time, have one slice, and a freeze of
  // one stops them all. Errors as set_slice.
  virtual Result<uint32_t> hardware_group(const GroupRef& group) = 0;

  // Stops / resumes the process itself, for those whose channels cannot be frozen alone: it
  // launches nothing more, its kernel in progress ends by itself. Not counted. Error
  // no_such_process when it is gone.
  virtual Result<> stop(const ProcessId& process) = 0;
  virtual Result<> resume(const ProcessId& process) = 0;

  // Everything logged since the last call. Cheap (12 us on an H200); call it every tick.
  virtual Result<SwitchBatch> read_switches(uint32_t gpu) = 0;

  // nullopt: this machine cannot tell (no NVML, no permission).
  virtual std::optional<std::vector<Utilisation>> utilisation(uint32_t gpu) = 0;

  // Finds the objects of a process that opened the driver before anyone watched, as the events that
  // would have been seen, ProcessOpened first; none if it has nothing. 5 ms for a CUDA program on
  // an H200, and up to 0.2 s for one whose client is very old or gone. It may keep the process's
  // memory on the GPU from being freed until it is over.
  virtual std::unique_ptr<ObjectSearch> attach(pid_t pid) = 0;
  // Processes that hold the driver open now.
  virtual std::vector<pid_t> users() const = 0;
};

}  // namespace gpushare
