// SPDX-License-Identifier: Apache-2.0
// DriverEvents as a CUDA program makes them, for the tests of sched/.
#pragma once

#include <utility>
#include <vector>

#include "intercept/event.h"
#include "intercept/gpu.h"

namespace gpushare::test {

template <class What>
DriverEvent event(const ProcessId& process, What what) {
  DriverEvent made;
  made.process = process;
  made.what = std::move(what);
  return made;
}

// The handles of one context as program() makes it.
struct Handles {
  uint32_t client, device, group, first_channel;
  uint32_t channels = 8;
};

// A context on the GPU of RM instance `instance`: a compute group with its channels, a copy group,
// 16 MiB of video memory. ProcessOpened first.
inline std::vector<DriverEvent> program(const ProcessId& process, const Handles& handles,
                                        uint32_t instance = 0) {
  std::vector<DriverEvent> events;
  events.push_back(
      event(process,
            ProcessOpened{.ns_pid = process.pid, .cgroup_id = 0, .uid = 1000, .command = "spin"}));
  events.push_back(event(process, ClientCreated{.client = handles.client, .fd = 3}));
  events.push_back(event(
      process,
      DeviceCreated{.client = handles.client, .device = handles.device, .instance = instance}));
  events.push_back(event(process, GroupCreated{.client = handles.client,
                                               .device = handles.device,
                                               .group = handles.group,
                                               .engine = Engine::kGraphics,
                                               .fd = 3}));
  for (uint32_t i = 0; i < handles.channels; ++i)
    events.push_back(event(process, ChannelCreated{.client = handles.client,
                                                   .parent = handles.group,
                                                   .channel = handles.first_channel + i,
                                                   .class_id = 0xC86F}));
  const uint32_t copy_group = handles.group + 0x1000;
  events.push_back(event(process, GroupCreated{.client = handles.client,
                                               .device = handles.device,
                                               .group = copy_group,
                                               .engine = Engine::kCopy,
                                               .fd = 3}));
  events.push_back(event(process, ChannelCreated{.client = handles.client,
                                                 .parent = copy_group,
                                                 .channel = handles.first_channel + 0x1000,
                                                 .class_id = 0xC86F}));
  events.push_back(event(process, MemoryAllocated{.client = handles.client,
                                                  .device = handles.device,
                                                  .memory = handles.first_channel + 0x2000,
                                                  .bytes = 16 << 20,
                                                  .is_video = true}));
  return events;
}

}  // namespace gpushare::test
