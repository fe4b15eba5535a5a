// SPDX-License-Identifier: Apache-2.0
#include "tools/kubernetes/plugin.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "shmctl/base/log.h"
#include "shmctl/shim/container_socket.h"
#include "tools/base/atomic_file.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kTurn = 200ms;     // how often the kubelet's socket is looked at
constexpr Nanos kHello = 500ms;    // how often the agent is asked whether it is the same
constexpr Nanos kLookAtGpus = 2s;  // and at tenants
constexpr Nanos kLookAtDevices = 2s;
constexpr Nanos kAgentMissed = 30s;  // after which no new pods are to come here
constexpr auto kTenantPatience = 3s;
constexpr const char* kContainerRun = "/run/gpushare";
constexpr const char* kContainerLibrary = "/usr/lib/gpushare/libgpushare.so";

std::vector<std::string> tenants_of(const PlaneSnapshot& snapshot) {
  std::vector<std::string> names;
  for (const auto& [slot, tenant] : snapshot.tenants) names.emplace_back(tenant.name);
  return names;
}

}  // namespace

Plugin::Plugin(PluginOptions options)
    : options_(std::move(options)),
      status_(options_.endpoints),
      tenants_(options_.rules, options_.driver, options_.cgroup_root) {}

void Plugin::say_once(std::string& last, const std::string& text) const {
  if (last == text) return;
  last = text;
  if (!text.empty()) log_warning("{}", text);
}

void Plugin::run(Wait& wait) {
  const auto note = [this](auto change) {
    const std::lock_guard lock(mutex_);
    change();
    ++pods_changes_;
    changed_.notify_all();
  };
  const auto failed = [&](const Error& error) {
    note([&] { tenants_.lose_sight(); });
    say_once(api_trouble_, error.message());
  };
  PodWatch watch(options_.api_server, {.listed =
                                           [&](const PodList& list) {
                                             note([&] {
                                               tenants_.replace(list.pods);
                                               has_pods_ = true;
                                               api_trouble_.clear();
                                             });
                                           },
                                       .changed =
                                           [&](const PodEvent& event) {
                                             note([&] {
                                               event.kind == PodEvent::Kind::kDeleted
                                                   ? tenants_.remove(event.pod)
                                                   : tenants_.change(event.pod);
                                             });
                                           },
                                       .failed = failed});
  uint64_t seen = 0;
  while (wait.until(MonotonicClock().now())) {
    follow_agent();
    look_at_devices();
    tell_agent();
    look_at_gpus();
    follow_kubelet();
    name_pods();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kTurn, [&] { return pods_changes_ != seen; });
    seen = pods_changes_;
  }
  servers_.clear();
}

// Whoever answers with another pid, or after a pause, may know nothing of what was said before.
void Plugin::follow_agent() {
  const Time now = MonotonicClock().now();
  if (agent_ && now < next_hello_) return;
  next_hello_ = now + kHello;
  if (!agent_) {
    auto connected = Client::connect(options_.endpoints.socket);
    if (!connected) {
      const std::lock_guard lock(mutex_);
      is_agent_there_ = false;
      return say_once(agent_trouble_, connected.error().message());
    }
    agent_.emplace(*std::move(connected));
    agent_pid_ = 0;
  }
  const auto line = agent_->ask({.op = "hello"});
  const auto hello = line ? decode_hello(*line) : std::unexpected(line.error());
  if (!hello || !hello->is_admin) {
    agent_.reset();
    const std::lock_guard lock(mutex_);
    is_agent_there_ = false;
    return say_once(agent_trouble_, hello ? "the agent does not take this user for one that may "
                                            "change tenants: run as root, or in the group gpushare"
                                          : hello.error().message());
  }
  agent_seen_ = now;
  if (hello->pid == agent_pid_) return;
  const auto status = status_.read();
  if (!status) return;
  agent_pid_ = hello->pid;
  const std::lock_guard lock(mutex_);
  is_agent_there_ = true;
  tenants_.forget_told(tenants_of(status->snapshot));
  agent_trouble_.clear();
  log_info("the agent {} answers, {}", hello->pid, hello->version);
}

void Plugin::tell_agent() {
  std::vector<PodTenants::Step> steps;
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& complaint : tenants_.take_complaints())
      log_warning("pod {}", complaint);
    // Before the pods are known, none may be taken for one that has gone.
    if (!has_pods_ || !is_agent_there_) return;
    steps = tenants_.steps(MonotonicClock().now());
  }
  for (const PodTenants::Step& step : steps) {
    const auto line = agent_->ask(step.request);
    if (!line) {
      agent_.reset();
      const std::lock_guard lock(mutex_);
      is_agent_there_ = false;
      return say_once(agent_trouble_, line.error().message());
    }
    const auto done = decode_done(*line);
    const bool is_gone = !done && step.request.op == "remove" && !has_tenant(step.tenant);
    if (done && step.request.op == "set") {
      std::string settings;
      for (const auto& [key, value] : step.request.settings)
        settings.append(" ").append(key).append("=").append(value);
      log_info("tenant {}:{}", step.tenant, settings);
    }
    if (done && step.request.op == "remove") log_info("tenant {} is gone", step.tenant);
    const std::lock_guard lock(mutex_);
    if (done || is_gone) {
      tenants_.told(step);
    } else if (tenants_.refused(step, done.error().message(), MonotonicClock().now())) {
      log_warning("tenant {}: {} is refused, and tried again: {}", step.tenant, step.request.op,
                  done.error().message());
    }
    changed_.notify_all();
  }
}

// As the agent has published it after its last answer; where that cannot be read it may be there.
bool Plugin::has_tenant(const std::string& name) {
  const auto status = status_.read_plane();
  const std::vector<std::string> names = status ? tenants_of(status->snapshot) : std::vector{name};
  return std::ranges::find(names, name) != names.end();
}

// Of pods that ran before the plugin did. Of others await_tenant() learns it, and says when that
// cannot be asked.
void Plugin::look_at_devices() {
  const Time now = MonotonicClock().now();
  if (now < next_devices_) return;
  {
    const std::lock_guard lock(mutex_);
    if (!tenants_.has_unplaced()) return;
  }
  next_devices_ = now + kLookAtDevices;
  const auto devices = list_pod_devices(pod_resources());
  if (!devices) return;
  const std::lock_guard lock(mutex_);
  tenants_.see_devices(*devices);
}

std::string Plugin::pod_resources() const {
  return options_.kubelet + "/pod-resources/kubelet.sock";
}

void Plugin::look_at_gpus() {
  const Time now = MonotonicClock().now();
  if (now < next_gpus_) return;
  next_gpus_ = now + kLookAtGpus;
  if (agent_pid_ == 0) return;
  if (const auto status = status_.read_plane(); status && status->health.is_live()) {
    {
      const std::lock_guard lock(mutex_);
      tenants_.set_present(tenants_of(status->snapshot));
    }
    std::vector<SharedGpu> seen;
    std::string unknown;  // GPUs, by the agent's numbers of them
    for (const GpuRecord& gpu : status->snapshot.gpus) {
      seen.push_back({gpu.uuid, gpu.index, gpu.memory_bytes == kUnknown64 ? 0 : gpu.memory_bytes});
      if (gpu.uuid[0] == '\0') unknown += fmt::format(" {}", gpu.index);
    }
    say_once(gpu_trouble_, unknown.empty()
                               ? ""
                               : "no new pod gets shares of these GPUs, whose UUID the agent does "
                                 "not know, as of those that are not open:" +
                                     unknown);
    std::vector<SharedGpu> gpus = gpus_to_share(gpus_, seen);
    // A GPU that is away for a moment, with its agent, is not taken from pods that have it.
    if (!gpus.empty() && gpus != gpus_) {
      const std::lock_guard lock(mutex_);
      gpus_ = std::move(gpus);
      tenants_.set_gpu_memory(smallest_memory(gpus_));
      log_info("{} GPUs of {} shares, {} of them open", gpus_.size(), options_.rules.shares,
               std::ranges::count(gpus_, true, &SharedGpu::is_open));
    }
  }
  if (servers_.empty() || gpus_.empty()) return;
  const bool is_healthy = now - agent_seen_ < kAgentMissed;
  const auto tell = [&](ResourceServer& server, const Ids& ids) {
    server.set_devices(devices_of(ids, gpus_, is_healthy));
  };
  tell(*servers_[0], share_ids(gpus_, options_.rules.shares));
  tell(*servers_[1], memory_ids(gpus_, options_.rules.memory_unit));
}

// The folder is the agent's, and may be emptied with it.
void Plugin::name_pods() {
  const std::string path =
      std::filesystem::path(options_.endpoints.socket).parent_path() / kPodNamesFile;
  PodNames names;
  {
    const std::lock_guard lock(mutex_);
    if (!has_pods_) return;
    names = tenants_.names();
  }
  if (names == named_ && ::access(path.c_str(), F_OK) == 0) return;
  const auto written = write_whole_file(path, pod_names_text(names));
  say_once(file_trouble_,
           written ? "" : "metrics have no names of pods: " + written.error().message());
  if (written) named_ = std::move(names);
}

// A kubelet that starts removes all sockets in its folder and forgets the plugins: they serve and
// register again.
void Plugin::follow_kubelet() {
  const std::string folder = options_.kubelet + "/device-plugins";
  struct stat seen{};
  if (::stat((folder + "/kubelet.sock").c_str(), &seen) != 0) {
    kubelet_ = {};
    return say_once(kubelet_trouble_, "no kubelet at " + folder + "/kubelet.sock");
  }
  const std::pair<uint64_t, int64_t> kubelet{
      seen.st_ino, seen.st_ctim.tv_sec * 1'000'000'000 + seen.st_ctim.tv_nsec};
  const bool are_sockets_there = servers_.size() == 2 &&
                                 ::access((folder + "/gpushare-share.sock").c_str(), F_OK) == 0 &&
                                 ::access((folder + "/gpushare-memory.sock").c_str(), F_OK) == 0;
  if (kubelet == kubelet_ && are_sockets_there) return;
  servers_.clear();
  std::vector<std::unique_ptr<ResourceServer>> servers;
  for (Resource& resource : std::vector{share_resource(), memory_resource()}) {
    auto server = ResourceServer::start(folder, std::move(resource));
    if (!server) return say_once(kubelet_trouble_, server.error().message());
    servers.push_back(*std::move(server));
  }
  for (const auto& server : servers)
    if (const auto registered = server->register_it(); !registered)
      return say_once(kubelet_trouble_, registered.error().message());
  servers_ = std::move(servers);
  kubelet_ = kubelet;
  kubelet_trouble_.clear();
  next_gpus_ = {};
  log_info("registered with the kubelet: {} and {}", kShareResource, kMemoryResource);
}

Resource Plugin::share_resource() {
  return {.name = std::string(kShareResource),
          .endpoint = "gpushare-share.sock",
          .allocate = [this](const Ids& ids) { return allocate_shares(ids); },
          .prefer =
              [this](const Ids& available, const Ids& must, uint32_t size) {
                return preferred_shares(available, must, size, options_.rules.shares);
              },
          .before_start = [this](const Ids& ids) { return await_tenant(ids); }};
}

Resource Plugin::memory_resource() {
  return {.name = std::string(kMemoryResource),
          .endpoint = "gpushare-memory.sock",
          .allocate = [this](const Ids& ids) -> Result<Allocation> {
            const uint64_t bytes = ids.size() * options_.rules.memory_unit;
            return Allocation{.environment = {{"GPUSHARE_MEMORY", std::to_string(bytes)}},
                              .mounts = {},
                              .device_nodes = {},
                              .annotations = {{"gpushare.io/memory", std::to_string(bytes)}}};
          }};
}

Result<Allocation> Plugin::allocate_shares(const Ids& ids) const {
  if (const auto fits = check_shares(ids, options_.rules.shares); !fits)
    return std::unexpected(fits.error());
  const std::vector<std::string> uuids = gpus_of(ids);
  const std::string gpus = fmt::format("{}", fmt::join(uuids, ","));
  Allocation allocation;
  allocation.environment = {{"GPUSHARE_SHARES", std::to_string(ids.size())}};
  // Either way alone: NVIDIA's runtime would give the GPUs a second time.
  if (options_.cdi_kind.empty())
    allocation.environment["NVIDIA_VISIBLE_DEVICES"] = gpus;
  else
    for (const std::string& uuid : uuids)
      allocation.cdi_devices.push_back(options_.cdi_kind + "=" + uuid);
  allocation.annotations = {{"gpushare.io/gpus", gpus},
                            {"gpushare.io/shares", std::to_string(ids.size())}};
  const std::filesystem::path run = std::filesystem::path(options_.endpoints.socket).parent_path();
  // The agent's; a container whose mount is missing would not start.
  std::error_code code;
  std::filesystem::create_directories(run / kContainerFolder, code);
  allocation.mounts.push_back({kContainerRun, run / kContainerFolder});
  if (!options_.library.empty() && ::access(options_.library.c_str(), R_OK) == 0) {
    allocation.mounts.push_back({kContainerLibrary, options_.library});
    if (options_.is_shim_preloaded) allocation.environment["LD_PRELOAD"] = kContainerLibrary;
  }
  if (options_.passes_devices) {
    {
      const std::lock_guard lock(mutex_);  // this is a thread of the server's
      allocation.device_nodes = device_files(gpus_, uuids);
    }
    // Profilers use it, and a container whose device is missing would not start.
    if (const char* tools = "/dev/nvidia-uvm-tools"; ::access(tools, F_OK) == 0)
      allocation.device_nodes.emplace_back(tools);
  }
  return allocation;
}

// A container starts when its pod's tenant is there, so that no work of it is ever in another one.
Result<> Plugin::await_tenant(const Ids& ids) {
  const std::set<std::string> wanted(ids.begin(), ids.end());
  const auto devices = list_pod_devices(pod_resources());
  std::string trouble =
      devices ? "the kubelet names no pod of these devices" : devices.error().message();
  if (devices) {
    {
      const std::lock_guard lock(mutex_);
      tenants_.see_devices(*devices);
      ++pods_changes_;
      changed_.notify_all();
    }
    for (const ContainerDevices& container : *devices) {
      const bool is_it = container.resource == kShareResource &&
                         std::ranges::any_of(container.ids, [&](const std::string& id) {
                           return wanted.contains(id);
                         });
      if (!is_it) continue;
      std::unique_lock lock(mutex_);
      const auto is_settled = [&] {
        if (!is_agent_there_) return false;
        return options_.is_agent_required
                   ? tenants_.is_surely_settled(container.name_space, container.pod)
                   : tenants_.is_settled(container.name_space, container.pod);
      };
      if (changed_.wait_for(lock, kTenantPatience, is_settled)) return {};
      trouble = fmt::format("{}/{} has no tenant yet: {}", container.name_space, container.pod,
                            !is_agent_there_ ? "no agent answers"
                            : options_.is_agent_required && !tenants_.is_in_sight()
                                ? "the API server does not answer"
                            : tenants_.is_known(container.name_space, container.pod)
                                ? "the agent has refused it"
                                : "the API server does not show the pod");
      break;
    }
  }
  if (options_.is_agent_required)
    return make_error(std::errc::resource_unavailable_try_again, "start a container", trouble);
  log_warning("a container starts without its share: {}", trouble);
  return {};
}

}  // namespace gpushare
