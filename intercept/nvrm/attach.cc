// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/attach.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace gpushare::nvrm {
namespace {

constexpr uint32_t kClientBase = 0xC1D00000;
constexpr uint32_t kClientSpan = 0x100000;  // then RM counts from the base again
// For all descriptors of a process together; 190 ms on an H200, spent only where one of them has no
// client or a very old one.
constexpr uint32_t kMaxClientQuestions = 0x10000;
constexpr uint32_t kObjectBase = 0x5C000000;
// libcuda makes its first context's channels among its first few hundred objects; after so many
// handles in a row that name nothing, the rest is taken to be empty.
constexpr uint32_t kMissesToStop = 1024;
constexpr uint32_t kMaxObjects = 16384;
constexpr uint32_t kComputeLowByte = 0xC0;  // compute classes: 0xC3C0 Volta .. 0xCBC0 Hopper

struct Found {
  uint32_t handle = 0, parent = 0, class_id = 0;
};

std::optional<uint64_t> ask(Driver& driver, int fd, uint32_t client, uint32_t object,
                            uint32_t index) {
  gs_handle_info info{};
  info.h_object = object;
  info.index = index;
  if (!rm_control(driver, fd, client, client, GS_CTRL_CLIENT_GET_HANDLE_INFO, info, "ask a handle"))
    return std::nullopt;
  return info.result;
}

struct ControlFile {
  int number = -1;  // in the process
  Fd fd;            // our copy
  std::optional<uint32_t> client;
};

// Copies of the process's descriptors. One that it closed meanwhile is passed over.
Result<std::vector<ControlFile>> control_files(Driver& driver, ProcessId process) {
  std::vector<ControlFile> files;
  for (int number : driver.control_fds(process.pid)) {
    auto fd = driver.fetch(process, number);
    if (fd)
      files.push_back({number, std::move(*fd), std::nullopt});
    else if (fd.error().code != std::errc::bad_file_descriptor &&
             fd.error().code != std::errc::no_such_device)
      return std::unexpected(fd.error());
  }
  return files;
}

// The handle that RM gives to a client made now: none is newer.
Result<uint32_t> newest_client(Driver& driver) {
  auto fd = driver.open(GS_NV_CTL_MINOR);
  if (!fd) return std::unexpected(fd.error());
  return make_client(driver, fd->get());
}

// Which client was allocated on each file. Clients are numbered in the order in which they were
// made, so the search goes from `newest` back.
void find_clients(const RmClient& ours, uint32_t newest, std::vector<ControlFile>& files) {
  size_t missing = files.size();
  uint32_t questions = 0;
  for (uint32_t back = 1; back < kClientSpan && missing > 0; ++back) {
    const uint32_t client = kClientBase + ((newest - kClientBase - back) % kClientSpan);
    if (client == ours.client()) continue;
    for (ControlFile& file : files) {
      if (file.client) continue;
      if (++questions > kMaxClientQuestions) return;
      if (!ask(ours.driver(), file.fd.get(), client, client, GS_HANDLE_INFO_CLASS)) continue;
      file.client = client;
      --missing;
    }
  }
}

std::vector<Found> objects_of(Driver& driver, int fd, uint32_t client) {
  std::vector<Found> all;
  uint32_t misses = 0;
  for (uint32_t n = 0; n < kMaxObjects && misses < kMissesToStop; ++n) {
    const uint32_t handle = kObjectBase + n;
    const auto class_id = ask(driver, fd, client, handle, GS_HANDLE_INFO_CLASS);
    if (!class_id) {
      ++misses;
      continue;
    }
    misses = 0;
    const auto parent = ask(driver, fd, client, handle, GS_HANDLE_INFO_PARENT);
    all.push_back(
        {handle, static_cast<uint32_t>(parent.value_or(0)), static_cast<uint32_t>(*class_id)});
  }
  return all;
}

bool is_channel(uint32_t class_id) {
  return (class_id & 0xFF) == GS_CHANNEL_CLASS_LOW_BYTE && class_id > 0x2080;
}

// The groups with a compute object below one of their channels.
std::set<uint32_t> compute_groups(const std::vector<Found>& objects) {
  std::map<uint32_t, uint32_t> group_of_channel;
  for (const Found& object : objects)
    if (is_channel(object.class_id)) group_of_channel[object.handle] = object.parent;
  std::set<uint32_t> groups;
  for (const Found& object : objects) {
    const bool is_compute = (object.class_id & 0xFF) == kComputeLowByte && object.class_id > 0x9000;
    if (!is_compute) continue;
    if (auto it = group_of_channel.find(object.parent); it != group_of_channel.end())
      groups.insert(it->second);
  }
  return groups;
}

std::optional<uint32_t> instance_of(const RmClient& ours, int fd, uint32_t client,
                                    uint32_t subdevice) {
  gs_gpu_id id{};
  if (!rm_control(ours.driver(), fd, client, subdevice, GS_CTRL_GPU_GET_ID, id, "ask a device"))
    return std::nullopt;
  for (const RmGpuDevice& gpu : ours.gpus())
    if (gpu.gpu_id == id.gpu_id) return gpu.info.instance;
  return std::nullopt;
}

}  // namespace

Result<std::vector<DriverEvent>> find_objects(const RmClient& ours, ProcessId process) {
  std::vector<DriverEvent> events;
  auto files = control_files(ours.driver(), process);
  if (!files) return std::unexpected(files.error());
  if (files->empty()) return events;
  const auto newest = newest_client(ours.driver());
  if (!newest) return std::unexpected(newest.error());
  find_clients(ours, *newest, *files);

  const Time now = std::chrono::steady_clock::now();
  auto add = [&](auto what) { events.push_back({now, process, std::move(what)}); };
  for (const auto& [number, fd, client] : *files) {
    if (!client) continue;
    add(ClientCreated{*client, number});
    const auto objects = objects_of(ours.driver(), fd.get(), *client);
    const auto compute = compute_groups(objects);
    for (const Found& object : objects)
      if (object.class_id == GS_CLASS_SUBDEVICE)
        if (auto instance = instance_of(ours, fd.get(), *client, object.handle))
          add(DeviceCreated{*client, object.parent, *instance});
    for (const Found& object : objects)
      if (object.class_id == GS_CLASS_CHANNEL_GROUP)
        add(GroupCreated{*client, object.parent, object.handle,
                         compute.contains(object.handle) ? Engine::kGraphics : Engine::kCopy,
                         number});
    for (const Found& object : objects)
      if (is_channel(object.class_id))
        add(ChannelCreated{*client, object.parent, object.handle, object.class_id});
  }
  return events;
}

}  // namespace gpushare::nvrm
