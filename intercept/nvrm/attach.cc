// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/attach.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace gpushare::nvrm {
namespace {

constexpr uint32_t kClientBase = 0xC1D00000;
constexpr uint32_t kClientSpan = 0x100000;  // after that RM counts from the base again
// The limit for all descriptors of a process together. It takes 190 ms on an H200 and is reached
// only when one of them has no client or a very old one.
constexpr uint32_t kMaxClientQuestions = 0x10000;
constexpr uint32_t kObjectBase = 0x5C000000;
// The search ends after so many handles in a row that name nothing. libcuda makes its first
// context's channels among its first few hundred objects.
constexpr uint32_t kMissesToStop = 1024;
constexpr uint32_t kMaxObjects = 16384;
constexpr uint32_t kComputeLowByte = 0xC0;  // compute classes: 0xC3C0 Volta .. 0xCBC0 Hopper

struct Object {
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

// Copies the process's descriptors and leaves out those that it closed meanwhile.
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

// Makes a client, to learn the newest handle that RM has given, and closes it.
Result<uint32_t> newest_client(Driver& driver) {
  auto fd = driver.open(GS_NV_CTL_MINOR);
  if (!fd) return std::unexpected(fd.error());
  return make_client(driver, fd->get());
}

// Finds the client that was allocated on each file. RM numbers clients in the order in which they
// were made, so the search goes back from `newest`.
class ClientSearch {
 public:
  ClientSearch(const RmClient& ours, std::vector<ControlFile>& files)
      : ours_(ours), files_(files) {}
  void begin(uint32_t newest) {
    newest_ = newest;
    missing_ = files_.size();
  }
  // Asks each file that has no client yet whether it has the next one. False when the search is
  // over.
  bool ask_next() {
    if (missing_ == 0 || ++back_ >= kClientSpan) return false;
    const uint32_t client = kClientBase + ((newest_ - kClientBase - back_) % kClientSpan);
    if (client == ours_.client()) return true;
    for (ControlFile& file : files_) {
      if (file.client) continue;
      if (++questions_ > kMaxClientQuestions) return false;
      if (!ask(ours_.driver(), file.fd.get(), client, client, GS_HANDLE_INFO_CLASS)) continue;
      file.client = client;
      --missing_;
    }
    return true;
  }

 private:
  const RmClient& ours_;
  std::vector<ControlFile>& files_;
  size_t missing_ = 0;
  uint32_t newest_ = 0, back_ = 0, questions_ = 0;
};

// Finds the objects of one client.
class ClientObjects {
 public:
  // Asks for the next handle. False when the search is over.
  bool ask_next(Driver& driver, int fd, uint32_t client) {
    if (next_ >= kMaxObjects || misses_ >= kMissesToStop) return false;
    const uint32_t handle = kObjectBase + next_++;
    const auto class_id = ask(driver, fd, client, handle, GS_HANDLE_INFO_CLASS);
    if (!class_id) {
      ++misses_;
      return true;
    }
    misses_ = 0;
    const auto parent = ask(driver, fd, client, handle, GS_HANDLE_INFO_PARENT);
    all_.push_back(
        {handle, static_cast<uint32_t>(parent.value_or(0)), static_cast<uint32_t>(*class_id)});
    return true;
  }
  const std::vector<Object>& all() const { return all_; }

 private:
  std::vector<Object> all_;
  uint32_t next_ = 0, misses_ = 0;
};

bool is_channel(uint32_t class_id) {
  return (class_id & 0xFF) == GS_CHANNEL_CLASS_LOW_BYTE && class_id > 0x2080;
}

// The groups that have a compute object below one of their channels.
std::set<uint32_t> compute_groups(const std::vector<Object>& objects) {
  std::map<uint32_t, uint32_t> group_of_channel;
  for (const Object& object : objects)
    if (is_channel(object.class_id)) group_of_channel[object.handle] = object.parent;
  std::set<uint32_t> groups;
  for (const Object& object : objects) {
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

using What = decltype(DriverEvent::what);

// Passes what a client has to `add`, as events.
void tell(const RmClient& ours, const ControlFile& file, const std::vector<Object>& objects,
          const std::function<void(What)>& add) {
  const uint32_t client = *file.client;
  add(ClientCreated{client, file.number});
  const auto compute = compute_groups(objects);
  for (const Object& object : objects)
    if (object.class_id == GS_CLASS_SUBDEVICE)
      if (auto instance = instance_of(ours, file.fd.get(), client, object.handle))
        add(DeviceCreated{client, object.parent, *instance});
  for (const Object& object : objects)
    if (object.class_id == GS_CLASS_CHANNEL_GROUP)
      add(GroupCreated{client, object.parent, object.handle,
                       compute.contains(object.handle) ? Engine::kGraphics : Engine::kCopy,
                       file.number});
  for (const Object& object : objects)
    if (is_channel(object.class_id))
      add(ChannelCreated{client, object.parent, object.handle, object.class_id});
}

class Search final : public ObjectSearch {
 public:
  Search(const RmClient& ours, ProcessId process)
      : ours_(ours), process_(process), clients_(ours, files_) {}

  Result<std::optional<Found>> advance(Nanos budget) override {
    const Time until = std::chrono::steady_clock::now() + budget;
    if (!has_begun_) {
      if (auto begun = begin(); !begun) return std::unexpected(begun.error());
    } else if (const auto same = ours_.driver().fetch(process_, files_.front().number);
               !same && same.error().code == std::errc::no_such_process) {
      // The process has ended. Our copies of its descriptors would keep its objects.
      return std::unexpected(same.error());
    }
    do {
      if (files_.empty() || !ask_next()) return std::move(events_);
    } while (std::chrono::steady_clock::now() < until);
    return std::nullopt;
  }

 private:
  Result<> begin() {
    has_begun_ = true;
    auto files = control_files(ours_.driver(), process_);
    if (!files) return std::unexpected(files.error());
    files_ = std::move(*files);
    if (files_.empty()) return {};
    const auto newest = newest_client(ours_.driver());
    if (!newest) return std::unexpected(newest.error());
    clients_.begin(*newest);
    return {};
  }

  // Asks the next question. False when everything was asked.
  bool ask_next() {
    if (clients_.ask_next()) return true;
    while (at_ < files_.size() && !files_[at_].client) ++at_;
    if (at_ == files_.size()) return false;
    const ControlFile& file = files_[at_];
    if (objects_.ask_next(ours_.driver(), file.fd.get(), *file.client)) return true;
    const Time now = std::chrono::steady_clock::now();
    if (events_.empty()) events_.push_back({now, process_, ProcessOpened{}});
    tell(ours_, file, objects_.all(),
         [&](What what) { events_.push_back({now, process_, std::move(what)}); });
    objects_ = {};
    ++at_;
    return true;
  }

  const RmClient& ours_;
  const ProcessId process_;
  bool has_begun_ = false;
  std::vector<ControlFile> files_;
  ClientSearch clients_;
  size_t at_ = 0;  // the index in files_ whose objects are asked for
  ClientObjects objects_;
  Found events_;
};

}  // namespace

std::unique_ptr<ObjectSearch> find_objects(const RmClient& ours, ProcessId process) {
  return std::make_unique<Search>(ours, process);
}

}  // namespace gpushare::nvrm
