// SPDX-License-Identifier: Apache-2.0
#include "tools/kubernetes/kubelet.h"

#include <deviceplugin.grpc.pb.h>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <podresources.grpc.pb.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace gpushare {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);
// How often a stream looks whether its kubelet is still there.
constexpr auto kLook = std::chrono::milliseconds(200);

grpc::Status status_of(const Error& error) {
  const bool is_usage = error.code == std::errc::invalid_argument;
  return {is_usage ? grpc::StatusCode::INVALID_ARGUMENT : grpc::StatusCode::UNAVAILABLE,
          is_usage ? error.detail : error.message()};
}

template <class List>
std::vector<std::string> texts(const List& list) {
  return {list.begin(), list.end()};
}

std::shared_ptr<grpc::Channel> channel_to(const std::string& socket) {
  grpc::ChannelArguments arguments;
  // Each channel of its own: one that saw the last kubelet die would wait before it tries again.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

void limit(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  // A socket that is not there yet will be in a moment, or the deadline passes.
  context.set_wait_for_ready(true);
}

Result<> done(const grpc::Status& status, const char* step, const std::string& socket) {
  if (status.ok()) return {};
  return make_error(std::errc::connection_refused, step,
                    fmt::format("{}: {}", socket, status.error_message()));
}

}  // namespace

class ResourceServer::Service final : public v1beta1::DevicePlugin::Service {
 public:
  explicit Service(Resource resource) : resource_(std::move(resource)) {}
  const Resource& resource() const { return resource_; }

  void set_devices(std::vector<KubeletDevice> devices) {
    const std::lock_guard lock(mutex_);
    if (devices == devices_ && generation_ > 0) return;
    devices_ = std::move(devices);
    ++generation_;
    changed_.notify_all();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }

  v1beta1::DevicePluginOptions options() const {
    v1beta1::DevicePluginOptions options;
    options.set_pre_start_required(resource_.before_start != nullptr);
    options.set_get_preferred_allocation_available(resource_.prefer != nullptr);
    return options;
  }

  grpc::Status GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                      v1beta1::DevicePluginOptions* answer) override {
    *answer = options();
    return grpc::Status::OK;
  }

  // Says all devices at once and again whenever they change, until the kubelet goes.
  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty*,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* stream) override {
    std::unique_lock lock(mutex_);
    uint64_t said = 0;
    while (!is_stopped_ && !context->IsCancelled()) {
      if (said == generation_) {
        changed_.wait_for(lock, kLook);
        continue;
      }
      said = generation_;
      v1beta1::ListAndWatchResponse list;
      for (const KubeletDevice& device : devices_) {
        auto* added = list.add_devices();
        added->set_id(device.id);
        added->set_health(device.is_healthy ? "Healthy" : "Unhealthy");
      }
      lock.unlock();
      const bool is_sent = stream->Write(list);
      lock.lock();
      if (!is_sent) break;
    }
    return grpc::Status::OK;
  }

  grpc::Status GetPreferredAllocation(grpc::ServerContext*,
                                      const v1beta1::PreferredAllocationRequest* request,
                                      v1beta1::PreferredAllocationResponse* answer) override {
    for (const auto& container : request->container_requests()) {
      auto* one = answer->add_container_responses();
      if (!resource_.prefer) continue;
      for (std::string& id : resource_.prefer(
               texts(container.available_deviceids()), texts(container.must_include_deviceids()),
               static_cast<uint32_t>(std::max(0, container.allocation_size()))))
        one->add_deviceids(std::move(id));
    }
    return grpc::Status::OK;
  }

  grpc::Status Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* answer) override {
    for (const auto& container : request->container_requests()) {
      const auto allocation = resource_.allocate(texts(container.devicesids()));
      if (!allocation) return status_of(allocation.error());
      auto* one = answer->add_container_responses();
      one->mutable_envs()->insert(allocation->environment.begin(), allocation->environment.end());
      one->mutable_annotations()->insert(allocation->annotations.begin(),
                                         allocation->annotations.end());
      for (const Allocation::Mount& mount : allocation->mounts) {
        auto* added = one->add_mounts();
        added->set_container_path(mount.container);
        added->set_host_path(mount.host);
        added->set_read_only(mount.is_read_only);
      }
      for (const std::string& node : allocation->device_nodes) {
        auto* added = one->add_devices();
        added->set_container_path(node);
        added->set_host_path(node);
        added->set_permissions("rw");
      }
      for (const std::string& device : allocation->cdi_devices)
        one->add_cdi_devices()->set_name(device);
    }
    return grpc::Status::OK;
  }

  grpc::Status PreStartContainer(grpc::ServerContext*,
                                 const v1beta1::PreStartContainerRequest* request,
                                 v1beta1::PreStartContainerResponse*) override {
    if (!resource_.before_start) return grpc::Status::OK;
    const auto ready = resource_.before_start(texts(request->devicesids()));
    return ready ? grpc::Status::OK : status_of(ready.error());
  }

 private:
  const Resource resource_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<KubeletDevice> devices_;
  bool is_stopped_ = false;
  uint64_t generation_ = 0;  // 0: the devices are not known yet, and nothing is said
};

struct ResourceServer::Server {
  std::string folder;
  std::unique_ptr<Service> service;
  std::unique_ptr<grpc::Server> grpc;
};

ResourceServer::ResourceServer() : server_(std::make_unique<Server>()) {}

Result<std::unique_ptr<ResourceServer>> ResourceServer::start(const std::string& folder,
                                                              Resource resource) {
  const std::string path = folder + "/" + resource.endpoint;
  std::unique_ptr<ResourceServer> made(new ResourceServer);
  made->server_->folder = folder;
  made->server_->service = std::make_unique<Service>(std::move(resource));
  ::unlink(path.c_str());
  grpc::ServerBuilder builder;
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  builder.RegisterService(made->server_->service.get());
  made->server_->grpc = builder.BuildAndStart();
  if (made->server_->grpc == nullptr)
    return make_error(std::errc::io_error, "serve the kubelet", path + " cannot be listened on");
  return made;
}

ResourceServer::~ResourceServer() {
  if (server_->grpc == nullptr) return;
  server_->service->stop();
  server_->grpc->Shutdown(std::chrono::system_clock::now());
  server_->grpc->Wait();
}

Result<> ResourceServer::register_it() {
  const Resource& resource = server_->service->resource();
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(resource.endpoint);
  request.set_resource_name(resource.name);
  *request.mutable_options() = server_->service->options();
  const std::string socket = server_->folder + "/kubelet.sock";
  grpc::ClientContext context;
  limit(context);
  v1beta1::Empty answer;
  return done(
      v1beta1::Registration::NewStub(channel_to(socket))->Register(&context, request, &answer),
      "register with the kubelet", socket);
}

void ResourceServer::set_devices(std::vector<KubeletDevice> devices) {
  server_->service->set_devices(std::move(devices));
}

Result<std::vector<ContainerDevices>> list_pod_devices(const std::string& socket) {
  grpc::ClientContext context;
  limit(context);
  v1::ListPodResourcesResponse answer;
  const auto asked =
      done(v1::PodResourcesLister::NewStub(channel_to(socket))->List(&context, {}, &answer),
           "ask the kubelet for the pods' devices", socket);
  if (!asked) return std::unexpected(asked.error());
  std::vector<ContainerDevices> all;
  for (const auto& pod : answer.pod_resources())
    for (const auto& container : pod.containers())
      for (const auto& devices : container.devices())
        all.push_back({pod.namespace_(), pod.name(), container.name(), devices.resource_name(),
                       texts(devices.device_ids())});
  return all;
}

}  // namespace gpushare
