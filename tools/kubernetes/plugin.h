// SPDX-License-Identifier: Apache-2.0
// Plugin: what gpushare-device-plugin does. Pods come from the API server, and become tenants at
// the agent; GPUs come from the agent, and become devices at the kubelet. Nothing is kept but at
// those three: whichever of them, or the plugin, starts again, all is said anew.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "shmctl/program/wait.h"
#include "tools/agent/client.h"
#include "tools/agent/status_source.h"
#include "tools/kubernetes/devices.h"
#include "tools/kubernetes/kubelet.h"
#include "tools/kubernetes/pod_tenants.h"
#include "tools/kubernetes/pod_watch.h"

namespace gpushare {

struct PluginOptions {
  Endpoints endpoints;
  ApiServer api_server;
  ShareRules rules;
  CgroupDriver driver = CgroupDriver::kEither;
  std::string cgroup_root = "/";
  std::string kubelet = "/var/lib/kubelet";
  std::string library;  // of the shim, to be mounted; empty: none
  bool is_shim_preloaded = false;
  bool passes_devices = false;  // the GPUs' device nodes, where no runtime of NVIDIA's does
  // The kind of CDI devices by which containers get their GPUs; empty: not so.
  std::string cdi_kind;
  bool is_agent_required = false;
};

class Plugin {
 public:
  explicit Plugin(PluginOptions options);

  // Returns when `wait` is interrupted.
  void run(Wait& wait);

 private:
  using Ids = Resource::Ids;
  void follow_agent();
  void tell_agent();
  void follow_kubelet();
  void look_at_devices();
  void look_at_gpus();
  void name_pods();
  Resource share_resource();
  Resource memory_resource();
  Result<Allocation> allocate_shares(const Ids& ids) const;
  Result<> await_tenant(const Ids& ids);
  std::string pod_resources() const;  // the kubelet's socket
  bool has_tenant(const std::string& name);
  void say_once(std::string& last, const std::string& text) const;

  const PluginOptions options_;
  StatusSource status_;
  mutable std::mutex mutex_;  // of what follows, up to the next blank line
  std::condition_variable changed_;
  PodTenants tenants_;
  bool has_pods_ = false;  // they were listed
  bool is_agent_there_ = false;
  uint64_t pods_changes_ = 0;
  std::vector<SharedGpu> gpus_;

  std::optional<Client> agent_;
  pid_t agent_pid_ = 0;
  Time agent_seen_{}, next_hello_{}, next_gpus_{}, next_devices_{};
  std::pair<uint64_t, int64_t> kubelet_{};  // inode and time of its socket; zero: not registered
  std::vector<std::unique_ptr<ResourceServer>> servers_;
  PodNames named_;  // what was written last
  std::string agent_trouble_, gpu_trouble_, file_trouble_, kubelet_trouble_, api_trouble_;
};

}  // namespace gpushare
