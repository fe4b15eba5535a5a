// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/stage.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "intercept/nvrm/rm_gpu.h"
#include "intercept/sim/gpu/remote_gpu.h"
#include "tools/agent/client.h"

namespace gpushare::bench {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr Nanos kLookAgain = 2ms;   // between two looks at a condition that no descriptor tells of
constexpr Nanos kLimit = 20s;       // until something that begins or ends by itself has done so
constexpr Nanos kLateStart = 30ms;  // a program that begins later spoils the measurement

std::atomic<bool> is_interrupted = false;

void on_signal(int) { is_interrupted = true; }

}  // namespace

void abort_on_signals() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
}

void give_up(const char* step, std::string detail) {
  throw Abort{Error{std::make_error_code(std::errc::io_error), step, std::move(detail)}};
}

std::string ns_text(Time instant) { return std::to_string(instant.time_since_epoch().count()); }

Stage::Stage(const Settings& settings) : settings_(settings) {
  std::string folder = (fs::temp_directory_path() / "gpushare-bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    throw Abort{errno_error("make a temporary folder", folder).error()};
  folder_ = folder;
  region_ = fmt::format("/gpushare-bench-{}", folder.substr(folder.size() - 6));
  socket_ = folder_ + "/agent.sock";
  log_ = folder_ + "/log";
  if (!settings_.is_simulated) return;
  simulation_ = folder_ + "/sim.sock";
  auto started = Child::start(plan({program("gpushare-sim"), "--socket", simulation_, "--gpus",
                                    std::to_string(settings_.simulated_gpus)}));
  if (!started) throw Abort{started.error()};
  simulator_ = std::make_unique<Child>(std::move(*started));
  if (!wait_until([&] { return sim::make_sim_gpu(simulation_).has_value(); }, kLimit))
    give_up("start the simulated GPU", log_tail());
  variables_ = {{"GPUSHARE_SIM", simulation_}, {"LD_LIBRARY_PATH", settings_.build + "/lib/sim"}};
}

// The programs end first, so that none that the agent has frozen keeps another one from ending.
Stage::~Stage() {
  is_interrupted = false;  // what follows must not be interrupted
  programs_.clear();
  const bool had_agent = has_agent() || plane_.has_value();
  end_supervisor();
  if (had_agent) {
    try {
      recover();
    } catch (const Abort& abort) {
      fmt::print(stderr, "{}\n", abort.error.message());
    }
    (void)ControlPlane::remove(region_);
    ::shm_unlink((region_ + ".lock").c_str());
  }
  simulator_.reset();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string Stage::program(const std::string& name) const {
  return settings_.build + "/bin/" + name;
}

ChildPlan Stage::plan(std::vector<std::string> words) const {
  return {.words = std::move(words), .environment = variables_, .log = log_};
}

std::string Stage::log_tail() const {
  std::ifstream file(log_);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.substr(text.size() - std::min<size_t>(text.size(), 600));
}

bool Stage::wait_until(const std::function<bool()>& condition, Nanos limit) {
  const Time end = now() + limit;
  while (true) {
    if (is_interrupted) throw Abort{make_error(std::errc::interrupted, "wait").error()};
    std::vector<pollfd> sources;
    for (Child& child : programs_) {
      child.pump();
      if (child.fd() >= 0) sources.push_back({child.fd(), POLLIN, 0});
    }
    if (condition()) return true;
    const Nanos left = end - now();
    if (left <= 0ns) return false;
    const Nanos pause = std::min(left, kLookAgain);
    const timespec wait{.tv_sec = 0, .tv_nsec = pause.count()};
    ::ppoll(sources.data(), sources.size(), &wait, nullptr);
  }
}

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
  auto started = Child::start(plan(std::move(words)));
  if (!started) throw Abort{started.error()};
  return programs_.emplace_back(std::move(*started));
}

void Stage::set_variable(std::string name, std::string value) {
  variables_.emplace_back(std::move(name), std::move(value));
}

// A CUDA context takes about 0.4 s on an H200, and several at once wait for each other.
Time Stage::instant_for(size_t programs) const {
  return now() + 1000ms + 250ms * static_cast<int64_t>(programs);
}

std::string Stage::finish(Child& child, std::optional<Time> began_at) {
  const double limit = settings_.seconds * 4;
  if (!wait_until([&] { return child.has_ended(); }, kLimit + seconds(limit))) {
    child.kill();
    give_up("wait for a program", "it did not end");
  }
  if (child.status() != 0)
    give_up("run a program",
            fmt::format("it ended with status {}: {}", child.status(), log_tail()));
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
  const auto has_printed = [&] { return child.output().find('\n') != std::string::npos; };
  wait_until([&] { return child.has_ended() || has_printed(); }, kLimit);
  if (child.has_ended() || !has_printed()) give_up("wait for a program's progress", log_tail());
}

void Stage::kill_programs() { programs_.clear(); }

std::string Stage::run_tool(std::vector<std::string> words, int expected_status) {
  if (words[0][0] != '/') words[0] = program(words[0]);
  const std::string name = words[0];
  auto started = Child::start(plan(std::move(words)));
  if (!started) throw Abort{started.error()};
  Child& child = programs_.emplace_back(std::move(*started));
  const bool is_over = wait_until([&] { return child.has_ended(); }, kLimit);
  const std::string output = child.output();
  const int status = is_over ? child.status() : -1;
  programs_.pop_back();
  if (status != expected_status)
    give_up("run a tool", fmt::format("{}: status {}: {}", name, status, log_tail()));
  return output;
}

void Stage::start_agent(const std::string& tenants) {
  const std::string config = folder_ + "/gpushare.toml";
  std::ofstream(config) << tenants;
  std::vector<std::string> words{program("gpushared"), "--region", region_, "--socket", socket_,
                                 "--config",           config};
  if (settings_.is_simulated) words.push_back("--sim=" + simulation_);
  ChildPlan agent = plan(std::move(words));
  agent.signal_at_our_end = SIGTERM;  // so that it thaws
  auto started = Child::start(agent);
  if (!started) throw Abort{started.error()};
  supervisor_ = std::make_unique<Child>(std::move(*started));
  wait_for_agent();
}

void Stage::wait_for_agent() {
  const auto is_ready = [&] {
    supervisor_->pump();
    if (supervisor_->has_ended()) return true;
    if (!ask_hello(socket_)) return false;
    auto opened = ControlPlane::open_read_only(region_);
    if (!opened) return false;
    plane_ = std::move(*opened);
    const auto snapshot = take_snapshot(*plane_);
    return snapshot && snapshot->agent.agent_pid != 0 && snapshot->agent.gpu_count > 0;
  };
  if (!wait_until(is_ready, kLimit) || supervisor_->has_ended())
    give_up("start the agent", log_tail());
  const std::string reason = plane().agent.observe_only_reason;
  if (!reason.empty()) give_up("start the agent", "observe only: " + reason);
}

void Stage::end_supervisor() noexcept {
  if (!has_agent()) return;
  supervisor_->signal(SIGTERM);
  const Time end = now() + 8s;
  while (!supervisor_->has_ended() && now() < end) {
    supervisor_->pump();
    ::poll(nullptr, 0, 1);
  }
  supervisor_.reset();
}

void Stage::stop_agent() {
  supervisor_->signal(SIGTERM);
  const bool is_over = wait_until(
      [&] {
        supervisor_->pump();
        return supervisor_->has_ended();
      },
      kLimit);
  const int status = is_over ? supervisor_->status() : -1;
  supervisor_.reset();
  if (status != 0) give_up("stop the agent", fmt::format("status {}: {}", status, log_tail()));
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
  auto snapshot = take_snapshot(*plane_);
  if (!snapshot) throw Abort{snapshot.error()};
  return std::move(*snapshot);
}

void Stage::tell(const std::string& op, pid_t pid, const std::string& tenant) {
  Request request{.op = op, .tenant = tenant};
  if (pid != 0) request.pid = pid;
  const auto done = tell_agent(socket_, request);
  if (!done) throw Abort{done.error()};
}

std::unique_ptr<Gpu> Stage::open_gpu() const {
  auto gpu =
      settings_.is_simulated ? sim::make_sim_gpu(simulation_) : make_rm_gpu(RmUse::kRecovery);
  if (!gpu) throw Abort{gpu.error()};
  return std::move(*gpu);
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

std::vector<std::string> Stage::spin_arguments(double kernel_us) {
  return {"--kernel-us", fmt::format("{}", kernel_us), "--ns-per-unit",
          fmt::format("{}", solo().ns_per_unit)};
}

}  // namespace gpushare::bench
