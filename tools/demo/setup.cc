// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/setup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tools/agent/agent_health.h"
#include "tools/agent/client.h"
#include "tools/base/beside.h"

namespace gpushare {
namespace {

constexpr const char* kSetUp = "start an agent of its own";
constexpr Nanos kToStart = std::chrono::seconds(15);
constexpr Nanos kToStop = std::chrono::seconds(10);
constexpr Nanos kToRecover = std::chrono::seconds(10);
constexpr Nanos kToPublish = std::chrono::seconds(1);
constexpr Nanos kBetweenLooks = std::chrono::milliseconds(2);

// Two agents would set the slices of the same programs.
Result<> check_no_other_agent() {
  const auto plane = ControlPlane::open_read_only(kDefaultRegionName);
  if (!plane) return {};
  const auto snapshot = take_snapshot(*plane);
  if (!snapshot) return {};
  const AgentRecord& agent = snapshot->agent;
  if (!judge_agent(agent, MonotonicClock().now(), is_process_there(agent.agent_pid)).is_live())
    return {};
  return std::unexpected(
      Error{{},
            kSetUp,
            fmt::format("gpushared already runs here (pid {}) and would work against the demo's "
                        "own; stop it first ('systemctl stop gpushared'), or use --sim",
                        agent.agent_pid)});
}

}  // namespace

Result<> find_nvidia_gpu(const std::string& dev) {
  constexpr const char* kLook = "look for an NVIDIA GPU";
  const std::string control = dev + "/nvidiactl";
  const Fd fd(::open(control.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.is_open()) return errno_error(kLook, control);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dev, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("nvidia") && name.size() > 6 &&
        std::isdigit(static_cast<unsigned char>(name[6])) != 0)
      return {};
  }
  return make_error(std::errc::no_such_device, kLook, dev + "/nvidia0 and so on");
}

std::string DemoSetup::build_folder() { return std::filesystem::path(own_folder()).parent_path(); }

Result<std::unique_ptr<DemoSetup>> DemoSetup::open(Options options, Wait& wait) {
  if (!options.is_simulated) {
    if (::geteuid() != 0)
      return make_error(std::errc::operation_not_permitted, kSetUp,
                        "on a GPU it needs root ('sudo make demo'); --sim does not");
    if (auto alone = check_no_other_agent(); !alone) return std::unexpected(alone.error());
  }
  std::unique_ptr<DemoSetup> setup(new DemoSetup(std::move(options)));
  if (auto started = setup->start(wait); !started) return std::unexpected(started.error());
  return setup;
}

DemoSetup::DemoSetup(Options options)
    : options_(std::move(options)),
      bin_(build_folder() + "/bin/"),
      region_(fmt::format("/gpushare-demo-{}", ::getpid())) {}

DemoSetup::~DemoSetup() { [[maybe_unused]] const auto closed = close(); }

Result<> DemoSetup::start(Wait& wait) {
  auto folder = TempFolder::make("gpushare-demo");
  if (!folder) return std::unexpected(folder.error());
  folder_.emplace(std::move(*folder));
  std::ofstream(in_folder("gpushare.toml")) << options_.config;
  if (options_.is_simulated)
    if (auto started = start_simulation(wait); !started) return started;
  return start_agent(wait);
}

Result<> DemoSetup::start_simulation(Wait& wait) {
  const std::string socket = in_folder("sim.sock");
  auto process = launch("gpushare-sim", {bin_ + "gpushare-sim", "--socket", socket, "--gpus",
                                         std::to_string(options_.gpus)});
  if (!process) return std::unexpected(process.error());
  simulation_.emplace(std::move(*process));
  return simulation_->await(
      "open its socket", [&] { return ::access(socket.c_str(), F_OK) == 0; }, kToStart, &wait);
}

Result<> DemoSetup::start_agent(Wait& wait) {
  auto process = launch("gpushared", {find_gpushared(), "--config", in_folder("gpushare.toml")});
  if (!process) return std::unexpected(process.error());
  agent_.emplace(std::move(*process));
  const auto answers = agent_->await(
      "answer", [&] { return ask_hello(in_folder("agent.sock")).has_value(); }, kToStart, &wait);
  if (!answers) return answers;
  auto plane = ControlPlane::open_read_only(region_);
  if (!plane) return std::unexpected(plane.error());
  plane_.emplace(std::move(*plane));
  const auto snapshot = look();
  if (!snapshot) return std::unexpected(snapshot.error());
  if (snapshot->agent.observe_only_reason[0] != '\0')
    return std::unexpected(agent_->failure(
        kSetUp, fmt::format("the agent can only watch here, not share: {}",
                            static_cast<const char*>(snapshot->agent.observe_only_reason))));
  return {};
}

std::vector<std::string> DemoSetup::environment() const {
  std::vector<std::string> variables{"GPUSHARE_SOCKET=" + in_folder("agent.sock"),
                                     "GPUSHARE_REGION=" + region_};
  if (!options_.is_simulated) {
    variables.emplace_back("GPUSHARE_SIM");
    return variables;
  }
  variables.push_back("GPUSHARE_SIM=" + in_folder("sim.sock"));
  const char* const before = std::getenv("LD_LIBRARY_PATH");
  const std::string rest = before == nullptr || *before == '\0' ? "" : std::string(":") + before;
  variables.push_back("LD_LIBRARY_PATH=" + find_simulated_driver() + rest);
  return variables;
}

Result<Child> DemoSetup::launch(const std::string& name, std::vector<std::string> command) {
  return Child::start({.command = std::move(command),
                       .environment = environment(),
                       .name = name,
                       .leads_group = true,
                       .end_signal = SIGTERM});
}

Result<Child> DemoSetup::start_workload(std::string_view tenant, std::string_view workload,
                                        std::vector<std::string> arguments) {
  std::vector<std::string> command{
      bin_ + "gpushare",   "run", "--tenant",
      std::string(tenant), "--",  fmt::format("{}workloads/{}", bin_, workload)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch(fmt::format("{} ({})", workload, tenant), std::move(command));
}

Result<Child> DemoSetup::start_trace(Nanos length, const std::string& path) {
  const double seconds = std::chrono::duration<double>(length).count();
  return launch("gpushare trace", {bin_ + "gpushare", "trace", "--duration",
                                   fmt::format("{:.1f}", seconds), "--output", path});
}

Result<> DemoSetup::check() {
  for (auto* process : {&simulation_, &agent_})
    if (*process && (*process)->has_ended())
      return std::unexpected((*process)->failure("keep the demo running"));
  return {};
}

Result<PlaneSnapshot> DemoSetup::look() const {
  const auto publication = [&] {
    return plane_->region().header.publication.load(std::memory_order_relaxed);
  };
  const uint64_t before = publication();
  const Time deadline = MonotonicClock().now() + kToPublish;
  while (true) {
    Result<PlaneSnapshot> snapshot = take_snapshot(*plane_);
    const bool is_new = publication() != before && (!snapshot || snapshot->is_consistent);
    if (is_new || MonotonicClock().now() >= deadline) return snapshot;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

Result<> DemoSetup::close() {
  if (!folder_) return {};
  Result<> result;
  if (agent_) {
    agent_->stop(kToStop);
    auto process = launch("gpushared --recover", {find_gpushared(), "--recover"});
    if (process) {
      if (auto ended = process->finish(kToRecover); !ended)
        result = std::unexpected(ended.error());
      else if (*ended != 0)
        result = std::unexpected(process->failure("clean up"));
    } else {
      result = std::unexpected(process.error());
    }
  }
  agent_.reset();
  simulation_.reset();
  plane_.reset();
  if (auto removed = ControlPlane::remove(region_); !removed && result) result = removed;
  ::shm_unlink((region_ + ".lock").c_str());
  folder_.reset();
  return result;
}

}  // namespace gpushare
