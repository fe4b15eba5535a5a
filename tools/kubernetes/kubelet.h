// SPDX-License-Identifier: Apache-2.0
// The kubelet's side of a device plugin, by gRPC over unix sockets: a ResourceServer offers one
// resource, and list_pod_devices() asks which container has which devices. gRPC is in kubelet.cc
// only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shmctl/base/error.h"
#include "tools/kubernetes/devices.h"

namespace gpushare {

struct Allocation {
  struct Mount {
    std::string container, host;
    bool is_read_only = true;
  };
  std::map<std::string, std::string> environment;
  std::vector<Mount> mounts;
  std::vector<std::string> device_nodes;  // of the host, at the same place in the container
  std::map<std::string, std::string> annotations;
  std::vector<std::string> cdi_devices{};  // "nvidia.com/gpu=GPU-..."
};

// What a resource answers. Called on threads of the server, several at once. An error refuses the
// pod, and its text is what `kubectl describe pod` shows.
struct Resource {
  using Ids = std::vector<std::string>;
  std::string name;      // "gpushare.io/share"
  std::string endpoint;  // of its socket: "gpushare-share.sock"
  std::function<Result<Allocation>(const Ids& ids)> allocate;
  // Left empty: the kubelet takes any.
  std::function<Ids(const Ids& available, const Ids& must, uint32_t size)> prefer{};
  // Before a container starts. Left empty: nobody asks.
  std::function<Result<>(const Ids& ids)> before_start{};
};

class ResourceServer {
 public:
  // Serves at FOLDER/ENDPOINT; what is there is replaced.
  static Result<std::unique_ptr<ResourceServer>> start(const std::string& folder,
                                                       Resource resource);
  ~ResourceServer();  // Ends the streams, and removes the socket.

  // Tells the kubelet at FOLDER/kubelet.sock of the resource. Waits for 5 s at most.
  Result<> register_it();
  // The devices, from now on, of which the kubelet is told.
  void set_devices(std::vector<KubeletDevice> devices);

 private:
  class Service;
  struct Server;
  ResourceServer();
  std::unique_ptr<Server> server_;
};

struct ContainerDevices {
  std::string name_space, pod, container, resource;
  std::vector<std::string> ids;
};
// Asks the kubelet's PodResources at this socket. Waits for 5 s at most.
Result<std::vector<ContainerDevices>> list_pod_devices(const std::string& socket);

}  // namespace gpushare
