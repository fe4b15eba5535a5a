// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/stage.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "intercept/nvrm/rm_gpu.h"
#include "intercept/sim/gpu/remote_gpu.h"
#include "tools/agent/client.h"

namespace gpushare::bench {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr Nanos kGoodbye = 8s;      // until an agent has thawed everything; then it is killed
constexpr Nanos kLateStart = 30ms;  // a program that begins later spoils the measurement

// A GPU is simulated where tests run, and that machine may be slow and busy with other work.
Nanos limit_of(const Settings& settings) { return settings.is_simulated ? 60s : 20s; }

// What a scenario cannot go on without.
template <class T>
T needed(Result<T> result) {
  if (!result) throw Abort{result.error()};
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace

void give_up(const char* step, std::string detail) {
  throw Abort{Error{std::make_error_code(std::errc::io_error), step, std::move(detail)}};
}

std::string ns_text(Time instant) { return std::to_string(instant.time_since_epoch().count()); }

Stage::Stage(const Settings& settings, Wait& wait)
    : settings_(settings),
      limit_(limit_of(settings)),
      wait_(&wait),
      folder_(needed(TempFolder::make("gpushare-bench"))) {
  region_ = "/" + fs::path(folder_.path()).filename().string();
  socket_ = folder_.at("agent.sock");
  if (!settings_.is_simulated) return;
  simulation_ = folder_.at("sim.sock");
  simulator_ =
      std::make_unique<Child>(launch({program("gpushare-sim"), "--socket", simulation_, "--gpus",
                                      std::to_string(settings_.simulated_gpus)}));
  needed(simulator_->await(
      "answer", [&] { return sim::make_sim_gpu(simulation_).has_value(); }, limit_, wait_));
  variables_ = {"GPUSHARE_SIM=" + simulation_, "LD_LIBRARY_PATH=" + settings_.build + "/lib/sim"};
}

// The programs end first, so that none that the agent has frozen keeps another one from ending.
Stage::~Stage() {
  wait_ = &undisturbed_;
  programs_.clear();
  const bool had_agent = has_agent() || plane_.has_value();
  if (supervisor_) supervisor_->stop(kGoodbye);
  supervisor_.reset();
  if (had_agent) {
    try {
      recover();
    } catch (const Abort& abort) {
      fmt::print(stderr, "{}\n", abort.error.message());
    }
    (void)ControlPlane::remove(region_);
    ::shm_unlink((region_ + ".lock").c_str());
  }
}

std::string Stage::program(const std::string& name) const {
  return settings_.build + "/bin/" + name;
}

Child Stage::launch(std::vector<std::string> words, int end_signal) const {
  return needed(Child::start(
      {.command = std::move(words), .environment = variables_, .end_signal = end_signal}));
}

bool Stage::wait_until(const std::function<bool()>& condition, Nanos limit) {
  return needed(wait_->until([&]() -> Result<bool> { return condition(); }, limit));
}

// Looks every 2 ms, and so returns some tenths of a millisecond late. With exact windows of 20 ms
// the scenario bystander-short-turns falls into step with its rounds of 4 ms: on an H200 the
// bystander then got 96.5 % of what it could get, in each of seven runs with two versions of the
// agent, and 97.7 % or more so (bench/results/gpu_scenarios.jsonl, 2026-11-22).
void Stage::wait_until(Time instant) {
  wait_until([&] { return now() >= instant; }, instant - now() + 1s);
}

Child& Stage::start(const std::string& workload, std::vector<std::string> arguments,
                    const std::string& tenant) {
  std::vector<std::string> words;
  if (!tenant.empty())
    words = {program("gpushare"), "--socket", socket_, "run", "--tenant", tenant, "--"};
  words.push_back(program("workloads/" + workload));
  words.insert(words.end(), arguments.begin(), arguments.end());
  return programs_.emplace_back(launch(std::move(words)));
}

void Stage::set_variable(const std::string& name, const std::string& value) {
  variables_.push_back(name + "=" + value);
}

// A CUDA context takes about 0.4 s on an H200, and several at once wait for each other.
Time Stage::instant_for(size_t programs) const {
  return now() + 1000ms + 250ms * static_cast<int64_t>(programs);
}

std::string Stage::finish(Child& child, std::optional<Time> began_at) {
  needed(child.await(
      "end", [&] { return child.has_ended(); }, limit_ + seconds(settings_.seconds * 4), wait_));
  if (!child.has_succeeded()) throw Abort{child.failure("run a program")};
  const std::string line = child.last_line();
  const auto start = number_in(line, "start_ns");
  if (began_at && start) {
    const Nanos late = Time{Nanos{static_cast<int64_t>(*start)}} - *began_at;
    if (late > kLateStart)
      give_up("begin together", fmt::format("a program was {} ms late", late / 1ms));
  }
  return line;
}

void Stage::await_output(const Child& child) {
  needed(child.await(
      "print a line", [&] { return child.output().find('\n') != std::string::npos; }, limit_,
      wait_));
}

void Stage::kill_programs() { programs_.clear(); }

std::string Stage::run_tool(std::vector<std::string> words, int expected_status) {
  if (words[0][0] != '/') words[0] = program(words[0]);
  const Child child = launch(std::move(words));
  needed(child.await("end", [&] { return child.has_ended(); }, limit_, wait_));
  if (child.status() != expected_status) throw Abort{child.failure("run a tool")};
  return child.output();
}

void Stage::start_agent(const std::string& tenants) {
  const std::string config = folder_.at("gpushare.toml");
  std::ofstream(config) << tenants;
  std::vector<std::string> words{program("gpushared"), "--region", region_, "--socket", socket_,
                                 "--config",           config};
  if (settings_.is_simulated) words.push_back("--sim=" + simulation_);
  supervisor_ = std::make_unique<Child>(launch(std::move(words), SIGTERM));  // so that it thaws
  wait_for_agent();
}

void Stage::wait_for_agent() {
  const auto is_ready = [&] {
    if (!ask_hello(socket_)) return false;
    auto opened = ControlPlane::open_read_only(region_);
    if (!opened) return false;
    plane_ = std::move(*opened);
    const auto snapshot = take_snapshot(*plane_);
    return snapshot && snapshot->agent.agent_pid != 0 && snapshot->agent.gpu_count > 0;
  };
  needed(supervisor_->await("serve", is_ready, limit_, wait_));
  const std::string reason = plane().agent.observe_only_reason;
  if (!reason.empty()) give_up("start the agent", "observe only: " + reason);
}

void Stage::stop_agent() {
  if (supervisor_->stop(limit_) != 0) throw Abort{supervisor_->failure("stop the agent")};
  supervisor_.reset();
  if (auto snapshot = plane(); !snapshot.ledger.empty())
    give_up("stop the agent", "it left entries in its ledger");
}

// The supervisor is stopped first: if it saw its agent die, it would undo everything.
void Stage::kill_agent_and_supervisor() {
  const pid_t agent = static_cast<pid_t>(plane().agent.agent_pid);
  supervisor_->signal(SIGSTOP);
  ::kill(agent, SIGKILL);
  supervisor_->kill();
  supervisor_.reset();
}

void Stage::recover() {
  std::vector<std::string> words{"gpushared", "--recover", "--region", region_};
  if (settings_.is_simulated) words.push_back("--sim=" + simulation_);
  run_tool(std::move(words));
}

PlaneSnapshot Stage::plane() {
  if (!plane_) give_up("read the control plane", "there is no agent");
  return needed(take_snapshot(*plane_));
}

void Stage::tell(const std::string& op, pid_t pid, const std::string& tenant) {
  Request request{.op = op, .tenant = tenant};
  if (pid != 0) request.pid = pid;
  needed(tell_agent(socket_, request));
}

std::unique_ptr<Gpu> Stage::open_gpu() const {
  return needed(settings_.is_simulated ? sim::make_sim_gpu(simulation_)
                                       : make_rm_gpu(RmUse::kRecovery));
}

// The GPU stays the same, so one measurement serves all stages.
const Solo& Stage::solo() {
  static Solo solo;
  if (solo.ns_per_unit > 0) return solo;
  const std::string spin = finish(start("spin", {"--seconds", "1.5", "--measure-from", "0.5"}));
  const std::string endless =
      finish(start("endless", {"--seconds", "1.5", "--measure-from", "0.5"}));
  solo = {.spin_units_per_ms = number_in(spin, "units_per_ms").value_or(0),
          .ns_per_unit = number_in(spin, "ns_per_unit").value_or(0),
          .endless_turns_per_ms = number_in(endless, "turns_per_ms").value_or(0)};
  kill_programs();
  return solo;
}

Child& Stage::start_service(Time from, double period_us, double requests) {
  return start("periodic",
               {"--start-at", ns_text(from), "--kernel-us", "100", "--period-us",
                fmt::format("{}", period_us), "--samples", fmt::format("{:.0f}", requests),
                "--ns-per-unit", fmt::format("{}", solo().ns_per_unit)},
               has_agent() ? "service" : "");
}

std::vector<std::string> Stage::spin_arguments(double kernel_us) {
  return {"--kernel-us", fmt::format("{}", kernel_us), "--ns-per-unit",
          fmt::format("{}", solo().ns_per_unit)};
}

}  // namespace gpushare::bench
