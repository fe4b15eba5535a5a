// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/agent.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "sched/control/diagnosis.h"
#include "sched/control/server.h"
#include "sched/daemon/backend.h"
#include "sched/daemon/systemd.h"
#include "sched/module/module_link.h"
#include "sched/mps/link.h"
#include "sched/shim/shim_link.h"
#include "sched/step/scheduler.h"
#include "sched/tenants/config.h"
#include "sched/tenants/identity.h"
#include "sched/tenants/takeover.h"
#include "shmctl/base/log.h"
#include "shmctl/plane/region.h"

namespace gpushare {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

// However many events come, steps are no closer than this.
constexpr Nanos kLeastGap{1'000'000};
// How often to look for GPUs while there are none.
constexpr Nanos kLookAgain{2'000'000'000};

// Waits until a descriptor is readable, again each time it is told to.
class Waiter {
 public:
  // Waits on a copy: `fd` stays its owner's.
  Waiter(asio::io_context& loop, int fd, std::function<void()> then)
      : file_(loop, ::dup(fd)), then_(std::move(then)) {}

  void wait() {
    if (std::exchange(is_waiting_, true)) return;
    file_.async_wait(asio::posix::stream_descriptor::wait_read, [this](ErrorCode error) {
      if (error) return;  // also when it is destroyed: nothing may be touched then
      is_waiting_ = false;
      then_();
    });
  }

 private:
  asio::posix::stream_descriptor file_;
  const std::function<void()> then_;
  bool is_waiting_ = false;
};

class Agent {
 public:
  Agent(const AgentOptions& options, ControlPlane plane)
      : options_(options),
        plane_(std::move(plane)),
        module_(KernelModule::find(options.module, options.module_fd), tenants_, processes_),
        timer_(loop_),
        watchdog_(loop_),
        signals_(loop_, SIGTERM, SIGINT) {
    signals_.add(SIGHUP);
    signals_.add(SIGUSR1);
  }

  Result<> start();
  void run() { loop_.run(); }

 private:
  // Everything that goes when the GPUs go. Members are destroyed in reverse order.
  struct Driven {
    Backend backend;
    std::unique_ptr<Scheduler> scheduler;
    std::unique_ptr<Waiter> events;  // nullptr: no observer of its own
  };

  void follow_the_module();
  Observer* observer() const { return driven_ ? driven_->backend.observer : nullptr; }
  Result<Config> read_configuration() const;
  Result<> reload();
  void listen_for_shims();
  void take_spatial_gpus();
  void run_mps(std::vector<GpuInfo> spatial);
  Time follow_mps();
  MpsClient describe_client(const ProcessId& process) const;
  void look_for_gpus();
  void describe_self();
  void drop_gpus(std::string_view reason);
  void publish_no_gpu();
  void wake_at(Time when);
  void wake_now() { wake_at(std::max(clock_.now(), last_step_ + kLeastGap)); }
  void step();
  void wait_for_signal();
  void feed_watchdog();
  enum class Ending { kLeaves, kHandsOver };
  void stop(Ending ending);
  ControlScope scope();
  const char* observer_name() const;
  std::vector<Finding> findings() const;

  const AgentOptions options_;
  ControlPlane plane_;
  const MonotonicClock clock_;
  const SystemProcReader processes_;
  const Time started_ = clock_.now();
  Config config_;
  std::string config_error_;  // of the last reload; empty: it was taken
  Tenants tenants_;
  ModuleLink module_;
  std::string no_gpu_reason_;

  asio::io_context loop_{1};
  asio::steady_timer timer_, watchdog_;
  asio::signal_set signals_;
  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<Waiter> notices_;  // of the module
  std::unique_ptr<ShimLink> shims_;  // nullptr: programs with the shim run without us
  std::unique_ptr<Waiter> shim_calls_;
  std::unique_ptr<MpsLink> mps_;  // nullptr: not ours
  MpsConfig mps_config_;          // what it was made of
  std::unique_ptr<Driven> driven_;
  Time last_step_{}, wakes_at_{Time::max()}, next_look_{};
};

Result<> Agent::start() {
  auto config = read_configuration();
  if (!config) return std::unexpected(config.error());
  config_ = std::move(*config);
  set_log_level(config_.agent.log_level);
  if (auto taken = module_.start(config_, plane_); !taken) return taken;
  auto control = ControlServer::listen(loop_, options_.socket,
                                       [this](std::string_view line, const Peer& peer) {
                                         Answer answer = handle_request(line, peer, scope());
                                         if (answer.has_changed) wake_now();
                                         return answer;
                                       });
  if (!control) return std::unexpected(control.error());
  control_ = std::move(*control);

  wait_for_signal();
  if (module_.fd() >= 0) {
    notices_ = std::make_unique<Waiter>(loop_, module_.fd(), [this] { wake_now(); });
    notices_->wait();
  }
  listen_for_shims();
  look_for_gpus();
  feed_watchdog();
  notify_systemd("READY=1");
  return {};
}

void Agent::listen_for_shims() {
  auto shims = ShimLink::listen(options_.shim_socket, tenants_, processes_);
  if (!shims) return log_warning("no SM partitions: {}", shims.error().message());
  shims_ = std::move(*shims);
  shims_->set_region(plane_.region());
  shim_calls_ = std::make_unique<Waiter>(loop_, shims_->fd(), [this] {
    shims_->serve();
    shim_calls_->wait();
    wake_now();
  });
  shim_calls_->wait();
}

void Agent::take_spatial_gpus() {
  if (shims_ == nullptr || !driven_) return;
  std::vector<GpuInfo> spatial;
  for (const GpuInfo& gpu : driven_->backend.gpu->gpus())
    if (config_.spatial_gpus.contains(gpu.index)) spatial.push_back(gpu);
  shims_->set_gpus(spatial, {.gpus = config_.slo_gpus, .knees = config_.agent.knees});
  run_mps(std::move(spatial));
}

// A machine's simulated GPUs have no MPS, unless it is a simulated one, too.
void Agent::run_mps(std::vector<GpuInfo> spatial) {
  const MpsConfig& config = config_.mps;
  const bool has_none = !config.is_ours || (options_.simulation && config.program.empty());
  if (has_none || (mps_ != nullptr && config != mps_config_)) {
    shims_->set_mps(nullptr);
    mps_.reset();
  }
  if (has_none || (spatial.empty() && mps_ == nullptr)) return;
  if (mps_ == nullptr) {
    const auto folder = std::filesystem::path(options_.socket).parent_path();
    MpsPaths paths{.pipe_directory = folder / "mps", .log_directory = folder / "mps-log"};
    if (!config.program.empty()) paths.program = config.program;
    mps_config_ = config;
    mps_ = std::make_unique<MpsLink>(make_mps_host(paths), [this](const ProcessId& process) {
      return describe_client(process);
    });
    shims_->set_mps(mps_.get());
  }
  const std::size_t all = driven_->backend.gpu->gpus().size();
  mps_->want(spatial.empty() ? std::nullopt : std::optional(mps_gpus(std::move(spatial), all)),
             config.has_all_users);
  follow_mps();  // before the next program comes
}

Time Agent::follow_mps() {
  if (mps_ == nullptr) return Time::max();
  const MpsStatus before = mps_->status();
  const Time next = mps_->step(clock_.now());
  if (mps_->status() != before) describe_self();
  return next;
}

MpsClient Agent::describe_client(const ProcessId& process) const {
  const ProcessIdentity identity = identity_of(process, processes_);
  return {.process = process,
          .tenant = tenants_.at(tenants_.place_of(identity))->name,
          .command = identity.command};
}

// What the module said is read by the scheduler, if that reads the module's events at all.
void Agent::follow_the_module() {
  if (module_.follow(observer(), clock_.now())) wake_now();
  if (notices_) notices_->wait();
}

Result<Config> Agent::read_configuration() const {
  auto loaded = load_config(options_.config);
  if (loaded) return std::move(*loaded);
  if (loaded.error().size() == 1 &&
      loaded.error().front().code == std::errc::no_such_file_or_directory)
    return Config{};  // everything is at its default
  std::string text;
  for (const ConfigError& error : loaded.error())
    text += (text.empty() ? "" : "\n") + error.message();
  return make_error(std::errc::invalid_argument, "read the configuration", text);
}

Result<> Agent::reload() {
  auto config = read_configuration();
  Result<> loaded = config ? module_.reload(*config) : std::unexpected(config.error());
  config_error_ = loaded ? "" : loaded.error().message();
  if (!loaded) {
    log_error("{}", config_error_);
    return loaded;
  }
  const bool moves_gpus = config->spatial_gpus != config_.spatial_gpus ||
                          config->mps != config_.mps || config->slo_gpus != config_.slo_gpus ||
                          config->agent.knees != config_.agent.knees;
  config_ = std::move(*config);
  set_log_level(config_.agent.log_level);
  log_info("configuration read: {}", options_.config);
  if (moves_gpus) take_spatial_gpus();
  if (driven_) {
    driven_->scheduler->configure(config_.agent);
    module_.describe(driven_->backend.gpu->gpus(), config_);
    describe_self();
  }
  wake_now();
  return {};
}

void Agent::look_for_gpus() {
  KmodObserver* const module = options_.simulation ? nullptr : module_.observer();
  auto backend = open_backend(options_.simulation, module);
  if (!backend) {
    const std::string reason = backend.error().message();
    if (reason != std::exchange(no_gpu_reason_, reason)) log_warning("no GPU: {}", reason);
    publish_no_gpu();
    next_look_ = clock_.now() + kLookAgain;
    return wake_at(next_look_);
  }
  no_gpu_reason_.clear();
  driven_ = std::make_unique<Driven>();
  driven_->backend = std::move(*backend);
  if (module != nullptr)
    if (const auto asked = module->replay(); !asked) log_error("{}", asked.error().message());
  Gpu& gpu = *driven_->backend.gpu;
  driven_->scheduler =
      std::make_unique<Scheduler>(Scheduler::Surroundings{.gpu = gpu,
                                                          .observer = driven_->backend.observer,
                                                          .region = plane_.region(),
                                                          .processes = processes_,
                                                          .clock = clock_,
                                                          .tenants = tenants_},
                                  config_.agent);
  module_.start_over(gpu.gpus(), config_);
  take_spatial_gpus();
  if (shims_ != nullptr) {
    driven_->scheduler->set_parts(
        [this](uint32_t tenant, uint32_t index) { return shims_->part(tenant, index); });
    driven_->scheduler->set_gated(
        [this](const ProcessId& process) { return shims_->is_gated(process); });
  }
  driven_->scheduler->set_serving(
      [this](const ProcessId& process) { return mps_ != nullptr && mps_->is_server(process); });
  describe_self();
  driven_->scheduler->set_listener(
      {.on_switch =
           [this](const SwitchRecord& record) {
             if (control_->is_traced()) control_->trace(trace_line(record));
           },
       .on_change =
           [this](const Enforcer::Change& change, FreezeReason reason) {
             if (control_->is_traced()) control_->trace(trace_line(change, reason));
           }});

  const GpuSupport& support = gpu.support();
  log_info("{} GPU{}, driver {}, policy {}", gpu.gpus().size(), gpu.gpus().size() == 1 ? "" : "s",
           support.driver_version, config_.agent.policy);
  if (!support.reason.empty()) log_warning("not everything is enforced: {}", support.reason);
  if (!driven_->backend.warning.empty()) log_warning("{}", driven_->backend.warning);
  if (!options_.simulation && driven_->backend.observer != nullptr)
    log_info("programs are seen by {}", observer_name());
  if (driven_->backend.own)
    driven_->events =
        std::make_unique<Waiter>(loop_, driven_->backend.own->fd(), [this] { wake_now(); });
  wake_now();
}

void Agent::describe_self() {
  driven_->scheduler->set_agent({.agent_pid = static_cast<uint32_t>(::getpid()),
                                 .supervisor_pid = options_.supervisor_pid,
                                 .started = started_,
                                 .restarts = options_.restarts,
                                 .is_simulated = options_.simulation.has_value(),
                                 .are_tenants_in_sysfs = module_.has_tenants(),
                                 .mps = mps_ == nullptr ? MpsStatus{} : mps_->status(),
                                 .policy = config_.agent.policy,
                                 .spatial_gpus = config_.spatial_gpus,
                                 .slo_gpus = config_.slo_gpus});
}

void Agent::drop_gpus(std::string_view reason) {
  log_error("{}", reason);
  driven_.reset();
  look_for_gpus();
}

// The tools see an agent that lives and has nothing to drive.
void Agent::publish_no_gpu() {
  clear_gpus(plane_.region());
  AgentRecord record;
  record.agent_pid = static_cast<uint32_t>(::getpid());
  record.supervisor_pid = options_.supervisor_pid;
  record.started_ns = static_cast<uint64_t>(started_.time_since_epoch().count());
  record.published_ns = static_cast<uint64_t>(clock_.now().time_since_epoch().count());
  record.restarts = options_.restarts;
  record.is_simulated = options_.simulation.has_value();
  record.are_tenants_in_sysfs = module_.has_tenants();
  record.tick_us = static_cast<uint32_t>(std::chrono::duration_cast<Micros>(kLookAgain).count());
  no_gpu_reason_.copy(record.observe_only_reason, sizeof record.observe_only_reason - 1);
  write_record(plane_.region().agent, record);
}

void Agent::wake_at(Time when) {
  if (when >= wakes_at_ && wakes_at_ > clock_.now()) return;
  wakes_at_ = when;
  timer_.expires_at(when);
  timer_.async_wait([this](ErrorCode error) {
    if (error) return;  // set anew
    wakes_at_ = Time::max();
    step();
  });
}

void Agent::step() {
  last_step_ = clock_.now();
  if (!driven_) {
    follow_the_module();
    return last_step_ >= next_look_ ? look_for_gpus() : wake_at(next_look_);
  }
  Time next = driven_->scheduler->step();
  next = std::min(next, follow_mps());
  if (shims_ != nullptr)
    next = std::min(next, shims_->step(last_step_, &driven_->scheduler->state().registry));
  if (driven_->scheduler->is_lost()) return drop_gpus("the GPUs do not answer any more");
  follow_the_module();
  if (!options_.simulation && !module_.is_still(observer(), last_step_))
    return drop_gpus("the kernel module's hook in the driver came or went: starting over");
  module_.publish(last_step_, driven_->scheduler->state());
  if (driven_->events) driven_->events->wait();
  wake_at(std::max(next, last_step_ + kLeastGap));
}

void Agent::wait_for_signal() {
  signals_.async_wait([this](ErrorCode error, int signal) {
    if (error) return;
    if (signal == SIGUSR1) return stop(Ending::kHandsOver);
    if (signal != SIGHUP) return stop(Ending::kLeaves);
    if (const Result<> loaded = reload(); !loaded) log_error("the old settings are kept");
    wait_for_signal();
  });
}

void Agent::feed_watchdog() {
  const std::optional<Micros> interval = watchdog_interval();
  if (!interval) return;
  notify_systemd("WATCHDOG=1");
  watchdog_.expires_after(*interval);
  watchdog_.async_wait([this](ErrorCode error) {
    if (!error) feed_watchdog();
  });
}

void Agent::stop(Ending ending) {
  notify_systemd("STOPPING=1");
  if (driven_) driven_->scheduler->stop();
  control_.reset();
  driven_.reset();
  notices_.reset();
  shim_calls_.reset();
  shims_.reset();
  if (mps_ != nullptr && ending == Ending::kLeaves) mps_->leave();
  mps_.reset();
  if (ending == Ending::kLeaves) clear_records(plane_.region());
  loop_.stop();
}

ControlScope Agent::scope() {
  return {.tenants = tenants_,
          .control = module_.control(),
          .scheduler = driven_ ? driven_->scheduler.get() : nullptr,
          .plane = plane_,
          .processes = processes_,
          .clock = clock_,
          .reload = [this] { return reload(); },
          .diagnose = [this] { return findings(); }};
}

const char* Agent::observer_name() const {
  if (options_.simulation) return "the simulation";
  return driven_ && driven_->backend.own ? "the eBPF probe" : "the kernel module";
}

std::vector<Finding> Agent::findings() const {
  return diagnose({.gpu = driven_ ? driven_->backend.gpu.get() : nullptr,
                   .no_gpu_reason = no_gpu_reason_,
                   .observer = driven_ ? driven_->backend.observer : nullptr,
                   .no_observer_reason = driven_ ? driven_->backend.warning : "",
                   .observer_name = observer_name(),
                   .has_module = module_.has_tenants(),
                   .module_problem = module_.problem(),
                   .mps = mps_ == nullptr ? nullptr : &mps_->status(),
                   .state = driven_ ? &driven_->scheduler->state() : nullptr,
                   .config_error = config_error_,
                   .config_path = options_.config,
                   .has_supervisor = options_.supervisor_pid != 0});
}

}  // namespace

Result<> run_agent(const AgentOptions& options) {
  auto plane = ControlPlane::create(options.region);
  if (!plane) return std::unexpected(plane.error());
  Agent agent(options, std::move(*plane));
  if (auto started = agent.start(); !started) return started;
  agent.run();
  return {};
}

}  // namespace gpushare
