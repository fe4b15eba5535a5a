// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/gpu/remote_gpu.h"
#include "intercept/process_stop.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "intercept/sim/gpu/sim_observer.h"
#include "intercept/sim/gpu/slow_search.h"
#include "intercept/sim/wire/client.h"
#include "intercept/sim/wire/codec.h"

namespace gpushare::sim {
namespace {

// How many channels go into one message; the server splits them as RmGpu does.
constexpr size_t kChannelsPerMessage = 16'384;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

class RemoteGpu final : public Gpu {
 public:
  RemoteGpu(std::unique_ptr<Client> client, std::vector<GpuInfo> gpus)
      : client_(std::move(client)), gpus_(std::move(gpus)) {
    support_ = {.can_freeze = true,
                .can_set_slice = true,
                .has_switch_log = true,
                .driver_version = "sim",
                .reason = {},
                .driver_load = client_->load()};
  }

  std::span<const GpuInfo> gpus() const override { return gpus_; }
  Result<OpenedGpu> open(uint32_t gpu) override;
  // Of all, now.
  Result<> open_all();
  const GpuSupport& support() const override { return support_; }
  bool knows_channel_class(uint32_t) const override { return true; }

  Result<> freeze(uint32_t gpu, std::span<const ChannelRef> channels) override {
    return control(Kind::kFreeze, gpu, channels, "freeze channels");
  }
  Result<> thaw(uint32_t gpu, std::span<const ChannelRef> channels) override {
    return control(Kind::kThaw, gpu, channels, "thaw channels");
  }

  Result<> set_slice(const GroupRef& group, Micros slice) override {
    if (slice < 1us) return make_error(std::errc::invalid_argument, "set time slice");
    const auto reply = group_call<SliceReply>(Kind::kSetSlice, group, slice, "set time slice");
    if (!reply) return std::unexpected(reply.error());
    return {};
  }
  Result<Micros> slice(const GroupRef& group) override {
    const auto reply = group_call<SliceReply>(Kind::kGetSlice, group, 0us, "get time slice");
    if (!reply) return std::unexpected(reply.error());
    return Micros(static_cast<int64_t>(reply->slice_us));
  }
  Result<uint32_t> hardware_group(const GroupRef& group) override {
    const auto reply =
        group_call<GroupReply>(Kind::kGetGroup, group, 0us, "get channel group number");
    if (!reply) return std::unexpected(reply.error());
    return static_cast<uint32_t>(reply->number);
  }
  // The programs of the simulation are real processes; only their GPU is simulated.
  Result<> stop(const ProcessId& process) override { return stop_process(process); }
  Result<> resume(const ProcessId& process) override { return resume_process(process); }

  Result<SwitchBatch> read_switches(uint32_t gpu) override;
  std::optional<UtilisationSample> utilisation(uint32_t gpu) override;
  std::unique_ptr<ObjectSearch> attach(pid_t pid, std::span<const ObjectRef> known) override;
  Result<std::vector<pid_t>> users() const override;
  Result<std::vector<ObjectRef>> missing(std::span<const ObjectRef> objects) override;

 private:
  Result<> control(Kind kind, uint32_t gpu, std::span<const ChannelRef> channels, const char* step);
  // `cost`: how long the driver would take to find them.
  Result<ObjectSearch::Found> objects_of(pid_t pid, Nanos& cost) const;
  template <class Reply>
  Result<Reply> group_call(Kind kind, const GroupRef& group, Micros slice, const char* step);
  // Returns the elements of an answer that is a CountReply and a list.
  template <class T, class Request>
  Result<std::vector<T>> list(Kind kind, const Request& request, const char* step,
                              Nanos* cost = nullptr) const;

  const std::unique_ptr<Client> client_;
  std::vector<GpuInfo> gpus_;
  GpuSupport support_;
};

Result<OpenedGpu> RemoteGpu::open(uint32_t index) {
  const auto gpu = client_->describe(index);
  if (!gpu) return std::unexpected(gpu.error());
  return OpenedGpu{.info = {.index = gpu->index,
                            .instance = gpu->instance,
                            .uuid = gpu->uuid,
                            .name = gpu->name,
                            .pci = gpu->pci,
                            .sm_count = gpu->sm_count,
                            .memory_bytes = gpu->memory_bytes}};
}

Result<> RemoteGpu::open_all() {
  for (GpuInfo& info : gpus_) {
    auto opened = open(info.index);
    if (!opened) return std::unexpected(opened.error());
    info = std::move(opened->info);
  }
  return {};
}

// Copies the `count` elements that follow a Head in an answer.
template <class Head, class T>
bool split(std::span<const std::byte> answer, Head& head, std::vector<T>& elements) {
  if (answer.size() < sizeof head) return false;
  std::memcpy(&head, answer.data(), sizeof head);
  if (answer.size() != sizeof head + head.count * sizeof(T)) return false;
  elements.resize(head.count);
  if (head.count > 0)
    std::memcpy(elements.data(), answer.data() + sizeof head, answer.size() - sizeof head);
  return true;
}

Result<> RemoteGpu::control(Kind kind, uint32_t gpu, std::span<const ChannelRef> channels,
                            const char* step) {
  if (channels.size() > kChannelsPerMessage)
    return make_error(std::errc::argument_list_too_long, step);
  static_assert(sizeof(ChannelRef) == sizeof(Channel));
  const ChannelsRequest request{gpu, static_cast<uint32_t>(channels.size())};
  const auto answer = client_->call(kind, bytes_of(request), std::as_bytes(channels), step);
  if (!answer) return std::unexpected(answer.error());
  return {};
}

template <class Reply>
Result<Reply> RemoteGpu::group_call(Kind kind, const GroupRef& group, Micros slice,
                                    const char* step) {
  const SliceRequest request{group.process.pid, group.fd,    group.process.start_ticks,
                             group.client,      group.group, static_cast<uint64_t>(slice.count())};
  const auto answer = client_->call(kind, bytes_of(request), {}, step);
  if (!answer) return std::unexpected(answer.error());
  Reply reply;
  if (answer->size() != sizeof reply) return make_error(std::errc::bad_message, step);
  std::memcpy(&reply, answer->data(), sizeof reply);
  return reply;
}

Result<SwitchBatch> RemoteGpu::read_switches(uint32_t gpu) {
  constexpr const char* kStep = "read context-switch log";
  SwitchBatch batch;
  SwitchesReply reply{};
  do {
    const auto answer = client_->call(Kind::kReadSwitches, bytes_of(GpuRequest{gpu, 0}), {}, kStep);
    if (!answer) return std::unexpected(answer.error());
    std::vector<Switch> records;
    if (!split(*answer, reply, records)) return make_error(std::errc::bad_message, kStep);
    for (const Switch& each : records)
      batch.records.push_back(
          {from_ns(each.time_ns), gpu, each.pid, each.context, each.is_start != 0});
    batch.lost += reply.lost;
    batch.complete_until = from_ns(reply.complete_until_ns);
  } while (reply.has_more != 0);
  return batch;
}

template <class T, class Request>
Result<std::vector<T>> RemoteGpu::list(Kind kind, const Request& request, const char* step,
                                       Nanos* cost) const {
  const auto answer = client_->call(kind, bytes_of(request), {}, step);
  if (!answer) return std::unexpected(answer.error());
  CountReply head{};
  std::vector<T> elements;
  if (!split(*answer, head, elements)) return make_error(std::errc::bad_message, step);
  if (cost != nullptr) *cost = Micros(head.cost_us);
  return elements;
}

std::optional<UtilisationSample> RemoteGpu::utilisation(uint32_t gpu) {
  const auto uses = list<Use>(Kind::kUtilisation, GpuRequest{gpu, 0}, "read utilisation");
  if (!uses) return std::nullopt;
  UtilisationSample sample;
  for (const Use& use : *uses) {
    if (use.pid == 0) {
      sample.from = from_ns(use.from_ns);
      sample.until = from_ns(use.until_ns);
      sample.busy = use.sm_ppm == kNotTold ? -1 : use.sm_ppm / 1e6;
    } else {
      sample.of.push_back({use.pid, use.sm_ppm / 1e6});
    }
  }
  return sample;
}

Result<std::vector<DriverEvent>> RemoteGpu::objects_of(pid_t pid, Nanos& cost) const {
  constexpr const char* kStep = "attach to process";
  const auto events = list<Event>(Kind::kAttach, PidRequest{pid, 0}, kStep, &cost);
  if (!events) return std::unexpected(events.error());
  std::vector<DriverEvent> all;
  for (const Event& event : *events) {
    auto decoded = decode(event);
    if (!decoded) return make_error(std::errc::bad_message, kStep);
    all.push_back(std::move(*decoded));
  }
  return all;
}

std::unique_ptr<ObjectSearch> RemoteGpu::attach(pid_t pid, std::span<const ObjectRef>) {
  Nanos cost{};
  auto found = objects_of(pid, cost);
  return found_after(cost, std::move(found), [](Nanos time) { std::this_thread::sleep_for(time); });
}

Result<std::vector<ObjectRef>> RemoteGpu::missing(std::span<const ObjectRef> objects) {
  constexpr const char* kStep = "ask for objects";
  static_assert(sizeof(ObjectRef) == sizeof(Channel));
  std::vector<ObjectRef> all;
  for (size_t at = 0; at < objects.size(); at += kChannelsPerMessage) {
    const auto part = objects.subspan(at, std::min(kChannelsPerMessage, objects.size() - at));
    const ChannelsRequest request{0, static_cast<uint32_t>(part.size())};
    const auto answer =
        client_->call(Kind::kMissing, bytes_of(request), std::as_bytes(part), kStep);
    if (!answer) return std::unexpected(answer.error());
    CountReply head{};
    std::vector<ObjectRef> gone;
    if (!split(*answer, head, gone)) return make_error(std::errc::bad_message, kStep);
    all.insert(all.end(), gone.begin(), gone.end());
  }
  return all;
}

Result<std::vector<pid_t>> RemoteGpu::users() const {
  return list<pid_t>(Kind::kUsers, GpuRequest{}, "list GPU users");
}

Result<std::unique_ptr<RemoteGpu>> list(const std::string& socket) {
  auto client = Client::connect(socket, Role::kControl);
  if (!client) return std::unexpected(client.error());
  std::vector<GpuInfo> gpus((*client)->gpu_count());
  for (uint32_t index = 0; index < gpus.size(); ++index) {
    gpus[index].index = index;
    gpus[index].instance = kNoInstance;
  }
  return std::make_unique<RemoteGpu>(std::move(*client), std::move(gpus));
}

}  // namespace

Result<std::unique_ptr<Gpu>> make_sim_gpu(const std::string& socket) {
  auto gpu = list(socket);
  if (!gpu) return std::unexpected(gpu.error());
  if (auto opened = (*gpu)->open_all(); !opened) return std::unexpected(opened.error());
  return std::move(*gpu);
}

Result<std::unique_ptr<Gpu>> list_sim_gpus(const std::string& socket) {
  auto gpu = list(socket);
  if (!gpu) return std::unexpected(gpu.error());
  return std::move(*gpu);
}

namespace {

Result<Simulation> with_observer(const std::string& socket,
                                 Result<std::unique_ptr<Gpu>> (*gpu_of)(const std::string&)) {
  auto observer = SimObserver::connect(socket);
  if (!observer) return std::unexpected(observer.error());
  auto gpu = gpu_of(socket);
  if (!gpu) return std::unexpected(gpu.error());
  return Simulation{std::move(*gpu), std::move(*observer)};
}

}  // namespace

Result<Simulation> make_sim(const std::string& socket) {
  return with_observer(socket, make_sim_gpu);
}

Result<Simulation> list_sim(const std::string& socket) {
  return with_observer(socket, list_sim_gpus);
}

}  // namespace gpushare::sim
