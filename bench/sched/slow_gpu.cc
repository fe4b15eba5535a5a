// SPDX-License-Identifier: Apache-2.0
#include "bench/sched/slow_gpu.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "intercept/sim/gpu/slow_search.h"
#include "tests/sched/support/events.h"

namespace gpushare::bench {
namespace {

constexpr pid_t kFirstPid = 10'000;
constexpr uint32_t kFirstClient = 0xC1D00000;
constexpr std::size_t kChannelsOfCall = 64;
constexpr Nanos kShortestTurn = std::chrono::milliseconds(1);
constexpr uint32_t kSetTimeslice = 0xA06C0103;

test::Handles handles_of(uint32_t program) {
  return {.client = kFirstClient + program,
          .device = 0x5C000001,
          .group = 0x5C000010,
          .first_channel = 0x5C000020};
}

}  // namespace

SlowGpu::SlowGpu(const Shape& shape)
    : shape_(shape), turns_(shape.gpus), locks_(std::make_unique<std::mutex[]>(shape.gpus)) {
  for (uint32_t i = 0; i < shape.gpus; ++i)
    infos_.push_back({.index = i,
                      .instance = i,
                      .uuid = "GPU-" + std::to_string(i),
                      .name = "simulated",
                      .pci = "",
                      .sm_count = 132,
                      .memory_bytes = uint64_t{141} << 30});
  support_ = {.can_freeze = true,
              .can_set_slice = true,
              .has_switch_log = true,
              .driver_version = "580",
              .reason = ""};
  for (uint32_t i = 0; i < shape.gpus * shape.programs; ++i)
    programs_.push_back(std::make_unique<Program>());
}

ProcessId SlowGpu::process(uint32_t program) const {
  const auto pid = kFirstPid + static_cast<pid_t>(program);
  return {pid, static_cast<uint64_t>(1000 + pid)};
}

std::vector<DriverEvent> SlowGpu::start_of(uint32_t program) const {
  const test::Handles handles = handles_of(program);
  auto events = test::program(process(program), handles, gpu_of(program));
  events.push_back(test::event(process(program),
                               ControlMade{handles.client, handles.group, kSetTimeslice, 0, 2048}));
  return events;
}

void SlowGpu::end(uint32_t program) { programs_[program]->has_ended = true; }

void SlowGpu::mark() {
  for (const auto& program : programs_) program->first_set = program->frozen_at = Time{};
}

Time SlowGpu::first_set(uint32_t program) const { return programs_[program]->first_set; }
Time SlowGpu::frozen_at(uint32_t program) const { return programs_[program]->frozen_at; }
Micros SlowGpu::slice_of(uint32_t program) const { return Micros(programs_[program]->slice_us); }
bool SlowGpu::is_frozen(uint32_t program) const { return programs_[program]->is_frozen; }

SlowGpu::Program* SlowGpu::find(uint32_t client) const {
  const uint32_t program = client - kFirstClient;
  return program < programs_.size() && !programs_[program]->has_ended ? programs_[program].get()
                                                                      : nullptr;
}

void SlowGpu::take(uint32_t gpu, Micros time) {
  const std::lock_guard lock(locks_[shape_.is_one_lock ? 0 : gpu]);
  ++calls_;
  std::this_thread::sleep_for(time);
}

Result<> SlowGpu::switch_channels(uint32_t gpu, std::span<const ChannelRef> channels,
                                  bool is_freeze) {
  for (std::size_t at = 0; at < channels.size(); at += kChannelsOfCall) {
    const auto part = channels.subspan(at, std::min(kChannelsOfCall, channels.size() - at));
    take(gpu, is_freeze ? shape_.times.freeze : shape_.times.thaw);
    for (const ChannelRef& channel : part) {
      Program* const program = find(channel.client);
      if (program == nullptr) continue;
      if (program->is_frozen.exchange(is_freeze) != is_freeze && is_freeze)
        program->frozen_at = MonotonicClock().now();
    }
  }
  return {};
}

Result<> SlowGpu::freeze(uint32_t gpu, std::span<const ChannelRef> channels) {
  for (const ChannelRef& channel : channels)
    if (find(channel.client) == nullptr)
      return make_error(std::errc::no_such_process, "freeze channels");
  return switch_channels(gpu, channels, true);
}
Result<> SlowGpu::thaw(uint32_t gpu, std::span<const ChannelRef> channels) {
  return switch_channels(gpu, channels, false);
}

Result<> SlowGpu::set_slice(const GroupRef& group, Micros slice) {
  Program* const program = find(group.client);
  if (program == nullptr) return make_error(std::errc::no_such_process, "set time slice");
  take(gpu_of(group.client - kFirstClient), shape_.times.set_slice);
  program->slice_us = slice.count();
  Time none{};
  program->first_set.compare_exchange_strong(none, MonotonicClock().now());
  return {};
}

Result<Micros> SlowGpu::slice(const GroupRef& group) {
  const Program* const program = find(group.client);
  if (program == nullptr) return make_error(std::errc::no_such_process, "get time slice");
  take(gpu_of(group.client - kFirstClient), shape_.times.get_slice);
  return Micros(program->slice_us);
}

Result<uint32_t> SlowGpu::hardware_group(const GroupRef& group) {
  if (find(group.client) == nullptr) return make_error(std::errc::no_such_process, "get number");
  take(gpu_of(group.client - kFirstClient), shape_.times.number);
  return (group.client - kFirstClient) % shape_.programs;
}

// Who has a slice of 1 us runs only where nobody else does.
Result<SwitchBatch> SlowGpu::read_switches(uint32_t gpu) {
  take(gpu, shape_.times.read_log);
  const Time now = MonotonicClock().now();
  SwitchBatch batch{.records = {}, .lost = 0, .complete_until = now};
  std::vector<uint32_t> active;
  for (uint32_t i = gpu * shape_.programs; i < (gpu + 1) * shape_.programs; ++i)
    if (!programs_[i]->has_ended && !programs_[i]->is_frozen && programs_[i]->slice_us > 1)
      active.push_back(i);
  Turn& turn = turns_[gpu];
  if (turn.end == Time{}) turn.end = now;
  if (active.empty()) return batch;
  while (turn.end <= now) {
    const auto next = std::ranges::upper_bound(active, turn.program);
    const uint32_t to = next == active.end() ? active.front() : *next;
    batch.records.push_back({.time = turn.end,
                             .gpu = gpu,
                             .pid = process(turn.program).pid,
                             .context = 0,
                             .is_start = false});
    batch.records.push_back(
        {.time = turn.end, .gpu = gpu, .pid = process(to).pid, .context = 0, .is_start = true});
    turn = {.program = to,
            .end = turn.end + std::max<Nanos>(kShortestTurn, Micros(programs_[to]->slice_us))};
  }
  return batch;
}

std::unique_ptr<ObjectSearch> SlowGpu::attach(pid_t pid, std::span<const ObjectRef>) {
  const auto program = static_cast<uint32_t>(pid - kFirstPid);
  if (program >= programs_.size() || programs_[program]->has_ended)
    return found_at_once(make_error(std::errc::no_such_process, "attach"));
  return sim::found_after(shape_.times.attach, start_of(program),
                          [](Nanos time) { std::this_thread::sleep_for(time); });
}

Result<std::vector<pid_t>> SlowGpu::users() const {
  std::vector<pid_t> pids;
  for (uint32_t i = 0; i < programs_.size(); ++i)
    if (!programs_[i]->has_ended) pids.push_back(process(i).pid);
  return pids;
}

Result<uint64_t> Told::drain(const Sink& sink, uint64_t most) {
  uint64_t count = 0;
  for (; count < most && at_ < events_.size(); ++count) sink(std::move(events_[at_++]));
  if (is_empty()) {
    events_.clear();
    at_ = 0;
  }
  return count;
}

void Told::tell(std::vector<DriverEvent> events) {
  std::ranges::move(events, std::back_inserter(events_));
}

}  // namespace gpushare::bench
