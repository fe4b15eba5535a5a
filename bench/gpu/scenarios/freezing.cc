// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/scenarios/freezing.h"

#include <algorithm>

namespace gpushare::bench {
namespace {

double us(Nanos time) { return static_cast<double>(time.count()) / 1000; }

void require(const Result<>& done) {
  if (!done) throw Abort{done.error()};
}

}  // namespace

Channels channels_of(Gpu& gpu, pid_t pid) {
  const auto events = gpu.attach(pid)->finish();
  if (!events) throw Abort{events.error()};
  Channels found;
  std::vector<uint32_t> compute_groups;
  for (const DriverEvent& event : *events) {
    if (const auto* device = std::get_if<DeviceCreated>(&event.what)) {
      for (const GpuInfo& info : gpu.gpus())
        if (info.instance == device->instance) found.gpu = info.index;
    } else if (const auto* group = std::get_if<GroupCreated>(&event.what)) {
      if (group->engine == Engine::kGraphics) compute_groups.push_back(group->group);
    } else if (const auto* channel = std::get_if<ChannelCreated>(&event.what)) {
      found.all.push_back({channel->client, channel->channel});
      if (std::ranges::count(compute_groups, channel->parent) > 0)
        found.compute.push_back(found.all.back());
    }
  }
  if (found.all.empty()) give_up("find a program's channels", "late attach found none");
  return found;
}

FreezeCycles freeze_cycles(Stage& stage, Gpu& gpu, uint32_t index,
                           const std::vector<ChannelRef>& channels, Nanos frozen, Nanos thawed,
                           Time until) {
  FreezeCycles cycles;
  Nanos stopped{};
  const Time begin = Stage::now();
  while (Stage::now() < until) {
    const Time f0 = Stage::now();
    require(gpu.freeze(index, channels));
    const Time f1 = Stage::now();
    std::optional<Abort> interrupted;
    try {
      stage.wait_until(f1 + frozen);
    } catch (const Abort& abort) {
      interrupted = abort;
    }
    const Time t0 = Stage::now();
    require(gpu.thaw(index, channels));
    const Time t1 = Stage::now();
    if (interrupted) throw *interrupted;
    cycles.freeze_us.push_back(us(f1 - f0));
    cycles.thaw_us.push_back(us(t1 - t0));
    stopped += t1 - f1;
    stage.wait_until(t1 + thawed);
  }
  cycles.frozen_fraction = us(stopped) / us(Stage::now() - begin);
  return cycles;
}

}  // namespace gpushare::bench
