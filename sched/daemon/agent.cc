// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/agent.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "sched/control/diagnosis.h"
#include "sched/control/server.h"
#include "sched/control/trace_lines.h"
#include "sched/daemon/driven_gpus.h"
#include "sched/daemon/event_loop.h"
#include "sched/daemon/mps_keeper.h"
#include "sched/daemon/systemd.h"
#include "sched/kept/kept_config.h"
#include "sched/kept/roster_store.h"
#include "sched/module/module_link.h"
#include "sched/policies/file_keeper.h"
#include "sched/policies/length_store.h"
#include "sched/policies/policies.h"
#include "sched/shim/shim_link.h"
#include "sched/slo/knees/store.h"
#include "sched/tenants/config.h"
#include "sched/tenants/takeover.h"
#include "sched/usage/keeper.h"
#include "shmctl/base/log.h"
#include "shmctl/plane/ledger.h"
#include "shmctl/plane/owner_list.h"
#include "shmctl/plane/region.h"
#include "shmctl/shim/container_socket.h"

namespace gpushare {
namespace {

// Wires the parts to the event loop; decides nothing.
class Agent final : public Listener {
 public:
  Agent(const AgentOptions& options, ControlPlane plane)
      : options_(options),
        plane_(std::move(plane)),
        module_(KernelModule::find(options.module, options.module_fd), tenants_, roster_,
                processes_),
        mps_(std::filesystem::path(options.socket).parent_path().string(),
             options.simulation.has_value(), tenants_, processes_),
        gpus_({.options = options_,
               .identity = {.agent_pid = static_cast<uint32_t>(::getpid()),
                            .supervisor_pid = options.supervisor_pid,
                            .started = clock_.now(),
                            .restarts = options.restarts,
                            .is_simulated = options.simulation.has_value(),
                            .are_tenants_in_sysfs = module_.has_tenants()},
               .region = plane_.region(),
               .processes = processes_,
               .clock = clock_,
               .tenants = tenants_,
               .module = module_,
               .mps = mps_,
               .listener = *this,
               .lengths = lengths_.store()->history()}) {}

  Result<> start();
  // Error: at its end not all was undone.
  Result<> run();
  // False after run(): the driver has not come back from a call, and the thread that waits for it
  // uses this object.
  bool is_at_rest() const { return is_at_rest_; }

  void on_switch(const SwitchRecord& record) override {
    if (control_->is_traced()) control_->trace(trace_line(record));
  }
  void on_turn(const TurnChange& turn) override {
    if (control_->is_traced()) control_->trace(trace_line(turn));
  }
  void on_change(const Enforcer::Change& change, FreezeReason reason) override {
    if (control_->is_traced()) control_->trace(trace_line(change, reason));
  }

 private:
  void open_lengths();
  void keep_usage();
  void follow_forks();
  void follow_the_module();
  Result<Config> read_configuration();
  Result<Config> last_correct_one(const Error& mistakes);
  Result<> reload();
  void listen_for_shims();
  void share_gpus();
  void look_for_gpus(Nanos patience = {});
  void look_for_more();
  void drop_gpus(std::string_view reason);
  void step(Time now);
  void look_at_turns();
  bool on_signal(int signal);
  enum class Ending { kLeaves, kHandsOver };
  void stop(Ending ending);
  ControlScope scope();
  std::vector<Finding> findings() const;

  const AgentOptions options_;
  ControlPlane plane_;
  const MonotonicClock clock_;
  std::unique_ptr<Lineage> lineage_;  // nullptr: daemons leave their tenant
  std::string no_lineage_reason_;
  SystemProcReader processes_;
  FileKeeper<KneeStore> knees_;
  FileKeeper<LengthStore> lengths_;
  Placements placements_;
  WaitingLine waiting_;
  UsageKeeper usage_{options_.region};
  const std::vector<PolicyEntry> policies_ =
      all_policies(knees_.store(), &lengths_.store()->history(), SloDecisions::kAside);
  ConfigKeeper kept_config_{[path = options_.config, kept = options_.kept_config,
                             policies = policies_] { keep_config(path, kept, policies); }};
  Config config_{policies_};
  std::string config_error_;  // of the last reload; empty: it was taken
  bool is_config_there_ = false;
  Roster roster_{plane_.region()};
  FileKeeper<RosterStore> kept_roster_;
  Tenants tenants_{&roster_};
  ModuleLink module_;
  EventLoop loop_{[this](Time now) { step(now); },
                  [this](int signal) { return on_signal(signal); }};
  std::unique_ptr<ControlServer> control_;
  MpsKeeper mps_;
  std::unique_ptr<ShimLink> shims_;  // nullptr: programs with the shim run without us
  DrivenGpus gpus_;

  std::unique_ptr<Waiter> notices_;     // of the module
  std::unique_ptr<Waiter> shim_calls_;  // of programs that ask for a slot
  std::unique_ptr<Waiter> shim_wakes_;  // of programs that have come to stand
  Alarm turns_{loop_.io(), [this] { look_at_turns(); }};
  std::unique_ptr<Waiter> events_;             // of the GPUs' own observer; nullptr: there is none
  std::unique_ptr<Waiter> opened_;             // of a driver and of GPUs that are being opened
  Time next_look_{};                           // for GPUs, while there are none
  bool is_at_rest_ = true, is_undone_ = true;  // at the end
};

Result<> Agent::start() {
  auto config = read_configuration();
  if (config)
    kept_config_.ask();
  else
    config = last_correct_one(config.error());
  if (!config) return std::unexpected(config.error());
  config_ = std::move(*config);
  set_log_level(config_.agent.log_level);
  open_lengths();
  keep_usage();
  follow_forks();
  if (auto taken = module_.start(config_, OwnerList::with_clients(plane_.region())); !taken)
    return taken;
  waiting_.take_over(plane_.region(), clock_.now());
  kept_roster_.open(options_.kept_roster);
  if (!options_.kept_roster.empty()) kept_roster_.store()->follow(roster_);
  auto control = ControlServer::listen(loop_.io(), options_.socket,
                                       [this](std::string_view line, const Peer& peer) {
                                         Answer answer = handle_request(line, peer, scope());
                                         if (answer.has_changed) loop_.wake_now();
                                         return answer;
                                       });
  if (!control) return std::unexpected(control.error());
  control_ = std::move(*control);

  if (module_.fd() >= 0) {
    notices_ = loop_.wake_on(module_.fd());
    notices_->wait();
  }
  listen_for_shims();
  opened_ = std::make_unique<Waiter>(loop_.io(), gpus_.fd(), [this] {
    next_look_ = {};
    loop_.wake_now();
  });
  opened_->wait();
  look_for_gpus(DriverLine::kStuck);
  loop_.start();
  return {};
}

Result<> Agent::run() {
  loop_.run();
  if (is_undone_) return {};
  return make_error(std::errc::timed_out, "undo what was done to programs",
                    "the rest is left to the supervisor, or to 'gpushared --recover'");
}

// What a simulated GPU says of lengths is nothing for the real ones.
void Agent::open_lengths() {
  const std::string otherwise = options_.simulation ? "" : AgentConfig::kDefaultJobs;
  lengths_.open(config_.agent.jobs.value_or(otherwise));
}

// Neither is what a simulation's programs used.
void Agent::keep_usage() {
  const std::string otherwise = options_.simulation ? "" : AgentConfig::kDefaultUsage;
  usage_.open({.path = config_.agent.usage.value_or(otherwise),
               .most_bytes = config_.agent.usage_bytes,
               .is_for_all = config_.agent.is_usage_for_all});
}

// The module keeps lines of descent itself.
void Agent::follow_forks() {
  if (module_.has_tenants()) return;
  auto lineage = open_lineage(options_.region);
  if (!lineage) {
    no_lineage_reason_ = lineage.error().message();
    return log_warning("daemons leave their tenant: {}", no_lineage_reason_);
  }
  lineage_ = std::move(*lineage);
  processes_.set_lineage(lineage_.get());
  tenants_.on_attach([this](ProcessId process) {
    const Result<> followed = lineage_->follow(process);
    if (!followed && followed.error().code != std::errc::no_such_process)
      log_warning("daemons of process {} leave its tenant: {}", process.pid,
                  followed.error().message());
  });
  for (const auto& [process, tenant] : tenants_.attached()) (void)lineage_->follow(process);
}

void Agent::listen_for_shims() {
  auto shims =
      ShimLink::listen(options_.shim_socket, tenants_, processes_, plane_.region(), clock_);
  if (!shims) return log_warning("no SM partitions: {}", shims.error().message());
  shims_ = std::move(*shims);
  if (const auto shared = share_with_containers(options_.shim_socket); !shared)
    log_warning("no SM partitions in containers: {}", shared.error().message());
  shim_calls_ = std::make_unique<Waiter>(loop_.io(), shims_->fd(), [this] {
    if (shims_->serve() > 0) loop_.wake_now();
    shim_calls_->wait();
  });
  shim_calls_->wait();
  if (shims_->wake_fd() < 0) return;
  shim_wakes_ = std::make_unique<Waiter>(loop_.io(), shims_->wake_fd(), [this] {
    if (const Time due = shims_->hear(clock_.now()); due != Time::max()) loop_.wake_at(due);
    look_at_turns();
    shim_wakes_->wait();
  });
  shim_wakes_->wait();
}

// Tells everything beside the scheduler how the GPUs are shared that are open. MPS is for those,
// too, that are about to be: a daemon for some GPUs could make room for one for all of them only
// when its last client has ended.
void Agent::share_gpus() {
  if (shims_ == nullptr || !gpus_.are_there()) return;
  bool has_targets = false;
  std::vector<GpuInfo> open, spatial;
  for (const GpuInfo& gpu : gpus_.gpus()) {
    if (!gpus_.is_expected(gpu.index)) continue;
    if (gpus_.gpu()->closed_because(gpu.index).empty()) open.push_back(gpu);
    const GpuConfig& own = config_.gpu(gpu.index);
    if (!own.is_spatial) continue;
    spatial.push_back(gpu);
    has_targets |= own.policy.entry->needs.iterations;
  }
  knees_.open(has_targets ? config_.agent.knees : "");
  shims_->set_gpus(open, config_);
  shims_->set_mps(nullptr);
  shims_->set_mps(mps_.want(config_.mps, std::move(spatial), gpus_.gpus().size(), clock_.now()));
}

// What the module said is read by the scheduler, if that reads the module's events at all.
void Agent::follow_the_module() {
  if (module_.follow(gpus_.observer(), clock_.now())) loop_.wake_now();
  if (notices_) notices_->wait();
}

Result<Config> Agent::read_configuration() {
  auto loaded = load_config(options_.config, policies_);
  is_config_there_ = loaded || loaded.error().size() != 1 ||
                     loaded.error().front().code != std::errc::no_such_file_or_directory;
  if (loaded) return std::move(*loaded);
  if (!is_config_there_) return Config(policies_);  // everything is at its default
  std::string text;
  for (const ConfigError& error : loaded.error())
    text += (text.empty() ? "" : "\n") + error.message();
  return make_error(std::errc::invalid_argument, "read the configuration", text);
}

// Mistakes of a file are no reason to leave everybody without limits.
Result<Config> Agent::last_correct_one(const Error& mistakes) {
  if (options_.kept_config.empty()) return std::unexpected(mistakes);
  auto kept = load_config(options_.kept_config, policies_);
  if (!kept) return std::unexpected(mistakes);
  config_error_ = mistakes.message();
  log_error("{}", config_error_);
  log_error("the last correct configuration holds instead: {}", options_.kept_config);
  return std::move(*kept);
}

Result<> Agent::reload() {
  auto config = read_configuration();
  Result<> loaded = config ? module_.reload(*config) : std::unexpected(config.error());
  config_error_ = loaded ? "" : loaded.error().message();
  if (!loaded) {
    log_error("{}", config_error_);
    return loaded;
  }
  config_ = std::move(*config);
  set_log_level(config_.agent.log_level);
  log_info("configuration read: {}", options_.config);
  open_lengths();
  keep_usage();
  kept_config_.ask();
  if (gpus_.are_there()) {
    gpus_.scheduler().configure(config_);
    module_.describe(gpus_.gpus(), config_);
    share_gpus();
  }
  loop_.wake_now();
  return {};
}

// Is woken as soon as a driver that is being opened answers.
void Agent::look_for_gpus(Nanos patience) {
  if (!gpus_.find(config_, shims_.get(), patience)) {
    next_look_ = std::min(clock_.now() + DrivenGpus::kLookAgain, gpus_.next());
    opened_->wait();
    return loop_.wake_at(next_look_);
  }
  share_gpus();
  if (const Observer* own = gpus_.own_observer()) events_ = loop_.wake_on(own->fd());
  loop_.wake_now();
}

// GPUs that were not open when the others were.
void Agent::look_for_more() {
  if (gpus_.find_more()) {
    module_.describe(gpus_.gpus(), config_);
    share_gpus();
  }
  opened_->wait();
}

// While a GPU hangs the others are driven anew by another process: in this one what is under way on
// it might take effect after the next scheduler has undone it.
void Agent::drop_gpus(std::string_view reason) {
  log_error("{}", reason);
  if (!gpus_.lose()) {
    log_error("a call of the driver does not come back: the agent ends, and the next one starts");
    return stop(Ending::kHandsOver);
  }
  events_.reset();
  look_for_gpus();
}

void Agent::step(Time now) {
  kept_roster_.save(now);
  kept_config_.advance();
  waiting_.publish(plane_.region(), now);
  if (!gpus_.are_there()) {
    follow_the_module();
    tenants_.reuse_slots();  // nobody keeps anything by slot
    const std::set<ProcessId> may_remain = OwnerList::with_clients(plane_.region());
    end_the_dead(tenants_, processes_,
                 [&](const ProcessId& process) { return may_remain.contains(process); });
    return now >= next_look_ ? look_for_gpus() : loop_.wake_at(next_look_);
  }
  look_for_more();
  Time next = std::min(gpus_.scheduler().step(), gpus_.next());
  turns_.set(gpus_.scheduler().next_look_at_turns());
  next = std::min(next, mps_.step(clock_.now()));
  knees_.save(now);
  lengths_.save(now);
  if (gpus_.are_lost()) return drop_gpus("the GPUs do not answer any more");
  follow_the_module();
  if (!options_.simulation && !module_.is_still(gpus_.observer(), now))
    return drop_gpus("the kernel module's hook in the driver came or went: starting over");
  module_.publish(now, *gpus_.state());
  if (events_) events_->wait();
  loop_.wake_at(next);
}

// Who has come to stand makes room for the next one at once; a plan follows as soon as steps may.
void Agent::look_at_turns() {
  if (!gpus_.are_there() || !gpus_.scheduler().turns().has_orders()) return;
  if (gpus_.scheduler().look_at_turns()) loop_.wake_now();
  turns_.set(gpus_.scheduler().next_look_at_turns());
}

bool Agent::on_signal(int signal) {
  if (signal == SIGHUP) {
    if (const Result<> loaded = reload(); !loaded) log_error("the old settings are kept");
    return true;
  }
  stop(signal == SIGUSR1 ? Ending::kHandsOver : Ending::kLeaves);
  return false;
}

// What was set is begun to be written first, and done before the GPUs are given up: if one hangs,
// the agent may be killed before it has undone all, or ends without more.
void Agent::stop(Ending ending) {
  notify_systemd("STOPPING=1");
  kept_roster_.save_last();
  if (gpus_.are_there()) gpus_.scheduler().stop();
  events_.reset();
  opened_.reset();
  kept_roster_.finish();
  is_at_rest_ = gpus_.lose();
  control_.reset();
  notices_.reset();
  shim_calls_.reset();
  shim_wakes_.reset();
  turns_.set(Time::max());
  shims_.reset();
  is_undone_ = is_ledger_empty(plane_.region());
  const bool leaves = ending == Ending::kLeaves;
  if (leaves) mps_.leave();
  const EndingKind kind = leaves ? EndingKind::kStopped : EndingKind::kHandedOver;
  write_ending(plane_.region(), static_cast<uint32_t>(::getpid()),
               is_undone_ ? kind : EndingKind::kExited, is_undone_ ? 0 : 1, clock_.now());
  if (leaves) clear_records(plane_.region());
  loop_.stop();
}

ControlScope Agent::scope() {
  return {.tenants = tenants_,
          .control = module_.control(),
          .scheduler = gpus_.are_there() ? &gpus_.scheduler() : nullptr,
          .plane = plane_,
          .processes = processes_,
          .clock = clock_,
          .follows_forks = lineage_ != nullptr,
          .reload = [this] { return reload(); },
          .forget = [this] { return module_.control().forget(config_); },
          .diagnose = [this] { return findings(); },
          .lengths = &lengths_.store()->history(),
          .placements = &placements_,
          .waiting = &waiting_};
}

std::vector<Finding> Agent::findings() const {
  return diagnose({.gpu = gpus_.gpu(),
                   .no_gpu_reason = gpus_.no_gpu_reason(),
                   .observer = gpus_.observer(),
                   .no_observer_reason = gpus_.no_observer_reason(),
                   .observer_name = gpus_.observer_name(),
                   .has_module = module_.has_tenants(),
                   .module_problem = module_.problem(),
                   .no_lineage_reason = no_lineage_reason_,
                   .mps = mps_.own_status(),
                   .state = gpus_.state(),
                   .config_error = config_error_,
                   .config_path = options_.config,
                   .is_config_there = is_config_there_,
                   .has_supervisor = options_.supervisor_pid != 0,
                   .usage_path = usage_.status().path,
                   .usage_problem = usage_.status().problem});
}

}  // namespace

Result<> run_agent(const AgentOptions& options, bool& started) {
  auto plane = ControlPlane::create(options.region);
  if (!plane) return std::unexpected(plane.error());
  auto agent = std::make_unique<Agent>(options, std::move(*plane));
  if (auto begun = agent->start(); !begun) return begun;
  started = true;
  Result<> ran = agent->run();
  // It then stays until the process ends.
  static const Agent* left = nullptr;
  if (!agent->is_at_rest()) left = agent.release();
  (void)left;
  return ran;
}

}  // namespace gpushare
