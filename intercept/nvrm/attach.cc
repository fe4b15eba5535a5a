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

Result<uint64_t> ask(Driver& driver, int fd, uint32_t client, uint32_t object, uint32_t index) {
  gs_handle_info info{};
  info.h_object = object;
  info.index = index;
  if (auto done = rm_control(driver, fd, client, client, GS_CTRL_CLIENT_GET_HANDLE_INFO, info,
                             "ask a handle");
      !done)
    return std::unexpected(done.error());
  return info.result;
}

struct ControlFile {
  int number = -1;  // in the process
  Fd fd;            // our copy
};

// Copies the process's descriptors and leaves out those that it closed meanwhile.
Result<std::vector<ControlFile>> control_files(Driver& driver, ProcessId process) {
  std::vector<ControlFile> files;
  const auto numbers = driver.control_fds(process.pid);
  if (!numbers) return std::unexpected(numbers.error());
  for (int number : *numbers) {
    auto fd = driver.fetch(process, number);
    if (fd)
      files.push_back({number, std::move(*fd)});
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

// A client, and the index of the file on which it was allocated.
struct FoundClient {
  std::size_t file = 0;
  uint32_t client = 0;
};

// Finds the newest client of each file, and those that are asked for by name. RM numbers clients in
// the order in which they were made, so the search goes back from `newest`, and leaves out the
// numbers that an earlier one has asked the file for: the client of a file that was opened since
// then is newer.
class ClientSearch {
 public:
  ClientSearch(const RmClient& ours, const std::vector<ControlFile>& files,
               std::set<uint32_t> named)
      : ours_(ours), files_(files), named_(std::move(named)) {}

  void begin(uint32_t newest, const LearntFiles& learnt) {
    newest_ = (newest - kClientBase) % kClientSpan;
    for (const ControlFile& file : files_) {
      const auto at = learnt.find(file.number);
      const LearntFile known = at == learnt.end() ? LearntFile{} : at->second;
      std::set<uint32_t> first = named_;
      first.insert(known.clients.begin(), known.clients.end());
      const uint32_t since = (newest_ - known.newest) % kClientSpan;
      cursors_.push_back({.first = {first.begin(), first.end()},
                          .back = 0,
                          .skip_from = known.back == 0 ? kClientSpan : since,
                          .skip_to = std::min(since + known.back, kClientSpan),
                          .has_client = false});
    }
  }

  // Asks each file for its next client. False when the search is over.
  bool ask_next() {
    bool has_asked = false;
    for (std::size_t i = 0; i < files_.size() && questions_ < kMaxClientQuestions; ++i)
      has_asked |= ask_next(i, cursors_[i]);
    return has_asked;
  }

  const std::vector<FoundClient>& found() const { return found_; }
  // Whether the named clients that were not found are gone.
  bool is_complete() const {
    return std::ranges::all_of(cursors_, [](const Cursor& c) { return c.first.empty(); }) &&
           std::ranges::all_of(doubtful_, [&](uint32_t client) {
             return std::ranges::find(found_, client, &FoundClient::client) != found_.end();
           });
  }
  LearntFiles learnt() const {
    LearntFiles learnt;
    for (std::size_t i = 0; i < files_.size(); ++i)
      learnt[files_[i].number] = {
          .clients = {}, .newest = newest_, .back = asked_back(cursors_[i])};
    for (const FoundClient& found : found_)
      learnt[files_[found.file].number].clients.push_back(found.client);
    return learnt;
  }

 private:
  struct Cursor {
    std::vector<uint32_t> first;          // still to be asked before all others
    uint32_t back = 0;                    // so many numbers before the newest one were asked for
    uint32_t skip_from = 0, skip_to = 0;  // an earlier search has asked for those between
    bool has_client = false;
  };

  static uint32_t asked_back(const Cursor& cursor) {
    return cursor.back >= cursor.skip_from ? std::max(cursor.back, cursor.skip_to) : cursor.back;
  }

  bool ask_next(std::size_t file, Cursor& cursor) {
    const bool is_named = !cursor.first.empty();
    uint32_t client = 0;
    if (is_named) {
      client = cursor.first.back();
      cursor.first.pop_back();
    } else {
      if (cursor.has_client || asked_back(cursor) + 1 >= kClientSpan) return false;
      cursor.back = asked_back(cursor) + 1;
      client = kClientBase + (newest_ + kClientSpan - cursor.back) % kClientSpan;
    }
    if (ours_.is_own(client)) return true;
    ++questions_;
    const auto there =
        ask(ours_.driver(), files_[file].fd.get(), client, client, GS_HANDLE_INFO_CLASS);
    if (there) {
      found_.push_back({file, client});
      cursor.has_client = true;
    } else if (is_named && !is_gone(there.error())) {
      doubtful_.insert(client);
    }
    return true;
  }

  const RmClient& ours_;
  const std::vector<ControlFile>& files_;
  const std::set<uint32_t> named_;
  std::vector<Cursor> cursors_;  // as files_
  std::vector<FoundClient> found_;
  std::set<uint32_t> doubtful_;  // of which RM did not say that they are not on a file
  uint32_t newest_ = 0, questions_ = 0;
};

// Finds the objects of one client.
class ClientObjects {
 public:
  ClientObjects() = default;
  // `named`: handles that are asked for, wherever they are.
  explicit ClientObjects(std::set<uint32_t> named) : named_(std::move(named)) {}

  // Asks for the next handle. False when the search is over.
  bool ask_next(Driver& driver, int fd, uint32_t client) {
    if (next_ < kMaxObjects && misses_ < kMissesToStop) {
      misses_ = ask_for(driver, fd, client, kObjectBase + next_++) ? 0 : misses_ + 1;
      return true;
    }
    if (named_.empty()) return false;
    ask_for(driver, fd, client, *named_.begin());
    return true;
  }
  const std::vector<Object>& all() const { return all_; }
  bool is_complete() const { return is_complete_; }

 private:
  bool ask_for(Driver& driver, int fd, uint32_t client, uint32_t handle) {
    const bool is_named = named_.erase(handle) > 0;
    const auto class_id = ask(driver, fd, client, handle, GS_HANDLE_INFO_CLASS);
    if (!class_id) {
      if (is_named && !is_gone(class_id.error())) is_complete_ = false;
      return false;
    }
    const auto parent = ask(driver, fd, client, handle, GS_HANDLE_INFO_PARENT);
    all_.push_back(
        {handle, static_cast<uint32_t>(parent.value_or(0)), static_cast<uint32_t>(*class_id)});
    return true;
  }

  std::set<uint32_t> named_;
  std::vector<Object> all_;
  uint32_t next_ = 0, misses_ = 0;
  bool is_complete_ = true;
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
    if (gpu.gpu_id == id.gpu_id && ours.is_open(gpu.info.index)) return gpu.info.instance;
  return std::nullopt;
}

using What = decltype(DriverEvent::what);

// Passes what a client has to `add`, as events.
void tell(const RmClient& ours, const ControlFile& file, uint32_t client,
          const std::vector<Object>& objects, const std::function<void(What)>& add) {
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

std::set<uint32_t> clients_of(std::span<const ObjectRef> objects) {
  std::set<uint32_t> clients;
  for (const ObjectRef& object : objects) clients.insert(object.client);
  return clients;
}

class Search final : public ObjectSearch {
 public:
  Search(const RmClient& ours, ProcessId process, std::span<const ObjectRef> known, Learnt& learnt)
      : ours_(ours),
        process_(process),
        known_(known.begin(), known.end()),
        learnt_(learnt),
        clients_(ours, files_, clients_of(known)) {}

  Result<std::optional<Found>> advance(Nanos budget) override {
    auto found = go_on(budget);
    if (!found && is_gone(found.error())) learnt_.forget(process_);
    return found;
  }
  bool is_complete() const override { return is_complete_; }

 private:
  Result<std::optional<Found>> go_on(Nanos budget) {
    const Time until = std::chrono::steady_clock::now() + budget;
    if (!has_begun_) {
      if (auto begun = begin(); !begun) return std::unexpected(begun.error());
    } else if (const auto same = ours_.driver().fetch(process_, files_.front().number);
               !same && is_gone(same.error())) {
      // The process has ended. Our copies of its descriptors would keep its objects.
      return std::unexpected(same.error());
    }
    do {
      if (files_.empty() || !ask_next()) return std::move(events_);
    } while (std::chrono::steady_clock::now() < until);
    return std::nullopt;
  }

  Result<> begin() {
    has_begun_ = true;
    auto files = control_files(ours_.driver(), process_);
    if (!files) return std::unexpected(files.error());
    files_ = std::move(*files);
    if (files_.empty()) {
      // One that has ended, and is not reaped, has no descriptors either, which proves nothing.
      if (ours_.driver().life(process_) == Life::kAlive) return {};
      return make_error(std::errc::no_such_process, "look for objects");
    }
    const auto newest = newest_client(ours_.driver());
    if (!newest) return std::unexpected(newest.error());
    clients_.begin(*newest, learnt_.of(process_));
    return {};
  }

  // The known objects of one client.
  ClientObjects objects_of(uint32_t client) const {
    std::set<uint32_t> named;
    for (const ObjectRef& object : known_)
      if (object.client == client && object.object != client) named.insert(object.object);
    return ClientObjects(std::move(named));
  }

  // Asks the next question. False when everything was asked.
  bool ask_next() {
    if (is_looking_for_clients_) {
      if (clients_.ask_next()) return true;
      is_looking_for_clients_ = false;
      is_complete_ = clients_.is_complete();
      learnt_.put(process_, clients_.learnt());
    }
    if (at_ == clients_.found().size()) return false;
    const auto& [file_index, client] = clients_.found()[at_];
    const ControlFile& file = files_[file_index];
    if (!objects_) objects_ = objects_of(client);
    if (objects_->ask_next(ours_.driver(), file.fd.get(), client)) return true;
    is_complete_ &= objects_->is_complete();
    const Time now = std::chrono::steady_clock::now();
    if (events_.empty()) events_.push_back({now, process_, ProcessOpened{}});
    tell(ours_, file, client, objects_->all(),
         [&](What what) { events_.push_back({now, process_, std::move(what)}); });
    objects_.reset();
    ++at_;
    return true;
  }

  const RmClient& ours_;
  const ProcessId process_;
  const std::vector<ObjectRef> known_;
  Learnt& learnt_;
  bool has_begun_ = false, is_looking_for_clients_ = true, is_complete_ = true;
  std::vector<ControlFile> files_;
  ClientSearch clients_;
  size_t at_ = 0;  // the client, of those that were found, whose objects are asked for
  std::optional<ClientObjects> objects_;
  Found events_;
};

}  // namespace

std::unique_ptr<ObjectSearch> find_objects(const RmClient& ours, ProcessId process,
                                           std::span<const ObjectRef> known, Learnt& learnt) {
  return std::make_unique<Search>(ours, process, known, learnt);
}

}  // namespace gpushare::nvrm
