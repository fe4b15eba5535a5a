// SPDX-License-Identifier: Apache-2.0
// DriverEvent: the one vocabulary for what was observed at the driver's boundary. Every source (the
// eBPF probe, the kernel module, late attach, the simulated GPU) speaks it, and
// sched/step/registry is its only reader. Events are plain values; within one process they arrive
// in the order in which the driver answered.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "shmctl/base/clock.h"
#include "shmctl/base/process_id.h"

namespace gpushare {

// What an engine type number of a channel group stands for (NV2080_ENGINE_TYPE_* in
// class/cl2080.h).
enum class Engine : uint8_t { kGraphics, kCopy, kOther };

// First sight of a process that talks to the driver. Always precedes its other events.
struct ProcessOpened {
  pid_t ns_pid = 0;        // in its own innermost pid namespace; differs from `pid` in a container
  uint64_t cgroup_id = 0;  // cgroup v2 id (inode of the cgroup directory); 0 unknown
  uid_t uid = 0;
  std::string command;  // comm, at most 15 characters
};

// RM object handles below are 32-bit names that are unique within one client; a client handle is
// unique in the machine.
struct ClientCreated {
  uint32_t client = 0;
  int fd = -1;  // the process's own descriptor of /dev/nvidiactl it was allocated on
};
struct DeviceCreated {
  uint32_t client = 0, device = 0;
  uint32_t instance = 0;  // RM's device instance; differs from the minor number and CUDA's order
};
struct GroupCreated {  // channel group (TSG)
  uint32_t client = 0, device = 0, group = 0;
  Engine engine = Engine::kOther;
  int fd = -1;  // the descriptor on which it was allocated: slice controls must come through it
};
struct ChannelCreated {
  uint32_t client = 0, parent = 0, channel = 0;  // parent: its group, or the device when bare
  uint32_t class_id = 0;                         // 0xC86F on Hopper
};
struct MemoryAllocated {
  uint32_t client = 0, device = 0, memory = 0;
  uint64_t bytes = 0;  // as the driver rounded it
  bool is_video = false;
};
// `object` == `client`: the client and all below it. Freeing a parent frees its children.
struct ObjectFreed {
  uint32_t client = 0, object = 0;
};
// A scheduling control that the process itself made (not ours).
struct ControlMade {
  uint32_t client = 0, object = 0;
  uint32_t command = 0;  // RM control number, 0xA06C0103 = SET_TIMESLICE
  uint32_t status = 0;   // RM status, 0 = done
  uint64_t value = 0;    // first 8 bytes of its parameters: for SET_TIMESLICE the slice in us
};
// All its driver objects are gone: it exited, or replaced itself by exec.
struct ProcessClosed {
  bool by_exec = false;
};
// The source lost `count` events of unknown processes: rescan.
struct EventsLost {
  uint64_t count = 0;
};

struct DriverEvent {
  Time time{};
  ProcessId process;  // zero for EventsLost
  std::variant<ProcessOpened, ClientCreated, DeviceCreated, GroupCreated, ChannelCreated,
               MemoryAllocated, ObjectFreed, ControlMade, ProcessClosed, EventsLost>
      what;
};

}  // namespace gpushare
