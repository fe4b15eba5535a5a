// SPDX-License-Identifier: Apache-2.0
// DriverEvent: what was observed at the driver's boundary, in the same form from every source: the
// eBPF probe, the kernel module, the search for objects of programs that run already (Gpu::attach)
// and the simulated GPU. sched/registry/registry is the only reader. Events are plain values; those
// of one process arrive in the order in which the driver answered its calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "shmctl/base/clock.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

// The kind of engine that a channel group's engine type number (NV2080_ENGINE_TYPE_* in
// class/cl2080.h) stands for.
enum class Engine : uint8_t { kGraphics, kCopy, kOther };

// A process called the driver for the first time. This event precedes all others of the process.
struct ProcessOpened {
  pid_t ns_pid = 0;        // in its own innermost pid namespace; differs from `pid` in a container
  uint64_t cgroup_id = 0;  // cgroup v2 id (inode of the cgroup directory); 0 means unknown
  std::optional<uid_t> uid{};  // the kernel's word; none: a search does not learn it
  std::string command;         // comm, at most 15 characters
};

// A channel by its names in the driver.
struct ChannelRef {
  uint32_t client = 0;
  uint32_t channel = 0;
  bool operator==(const ChannelRef&) const = default;
};

// The RM object handles below are 32-bit names. An object's is unique within its client, a client's
// is unique in the machine.
struct ClientCreated {
  uint32_t client = 0;
  int fd = -1;  // the process's own descriptor of /dev/nvidiactl on which it was allocated
};
struct DeviceCreated {
  uint32_t client = 0, device = 0;
  uint32_t instance = 0;  // RM's device instance; differs from the minor number and CUDA's order
};
struct GroupCreated {  // channel group (TSG)
  uint32_t client = 0, device = 0, group = 0;
  Engine engine = Engine::kOther;
  int fd = -1;  // the descriptor on which it was allocated; slice controls must come through it
};
struct ChannelCreated {
  uint32_t client = 0, parent = 0, channel = 0;  // the parent is its group, or the device if none
  uint32_t class_id = 0;                         // 0xC86F on Hopper
};
struct MemoryAllocated {
  uint32_t client = 0, device = 0, memory = 0;
  uint64_t bytes = 0;     // the size as the driver rounded it
  bool is_video = false;  // true for memory of the GPU, false for memory of the machine
};
// Freeing a parent frees its children; `object` == `client` means the client and all below it.
struct ObjectFreed {
  uint32_t client = 0, object = 0;
};
// The process made a scheduling control; those of the agent make no event. The object may be
// another process's, when this process has a descriptor of that one.
struct ControlMade {
  uint32_t client = 0, object = 0;
  uint32_t command = 0;  // RM control number, 0xA06C0103 = SET_TIMESLICE
  uint32_t status = 0;   // RM status; 0 means done
  uint64_t value = 0;    // the first 8 bytes of its parameters; for SET_TIMESLICE the slice in us
};
// The process froze or thawed channels, which the driver lets every process do with those of any
// other. Those of the agent make no event.
struct ChannelsSwitched {
  bool is_freeze = false;
  std::vector<ChannelRef> channels;
};
// The process exited, or replaced itself by exec. The module says so when the last of its
// descriptors is closed, so that its driver objects are gone; the probe at once, when another
// process may have them open still (Gpu::missing() tells).
struct ProcessClosed {
  bool by_exec = false;
  std::optional<int> status{};  // of an exit, as wait(2) gives it; none: the source does not know
};
// The source lost `count` events, or could not believe them: of DriverEvent::process, or of unknown
// processes where that is all zero. The reader must look at that process, or at all, again.
struct EventsLost {
  uint64_t count = 0;
};

struct DriverEvent {
  Time time{};        // when the driver answered
  ProcessId process;  // all zero for EventsLost of unknown processes
  std::variant<ProcessOpened, ClientCreated, DeviceCreated, GroupCreated, ChannelCreated,
               MemoryAllocated, ObjectFreed, ControlMade, ProcessClosed, EventsLost,
               ChannelsSwitched>
      what;
};

}  // namespace gpushare
