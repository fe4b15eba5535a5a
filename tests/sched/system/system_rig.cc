// SPDX-License-Identifier: Apache-2.0
#include "tests/sched/system/system_rig.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "shmctl/plane/ledger.h"

namespace gpushare::test {
namespace {

constexpr Nanos kToStart = std::chrono::minutes(5), kToEnd = std::chrono::seconds(20);

}  // namespace

Fd connect_to(const std::string& path, int flags) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    fd.reset();
  return fd;
}

SystemRig::SystemRig(const std::string& config, unsigned gpus)
    : temporary_(needed(TempFolder::make("gpushare-test"))),
      folder(temporary_.path()),
      socket(folder + "/agent.sock"),
      region("/" + std::filesystem::path(folder).filename().string()),
      gpus_(gpus) {
  write_config(config);
  start_simulation();
}

void SystemRig::start_simulation() {
  std::vector<std::string> command{build_folder() + "/bin/gpushare-sim", "--socket",
                                   simulation_socket(), "--gpus", std::to_string(gpus_)};
  command.insert(command.end(), simulation_options.begin(), simulation_options.end());
  simulation = started({.command = std::move(command)});
  needed(simulation->await(
      "listen", [&] { return connect_to(simulation_socket()).is_open(); }, kToStart));
}

void SystemRig::set_hang(uint32_t gpu, bool hangs) {
  if (simulator_ == nullptr)
    simulator_ = needed(sim::Client::connect(simulation_socket(), sim::Role::kControl));
  const sim::HangRequest request{gpu, hangs};
  needed(simulator_->call(sim::Kind::kHang, std::as_bytes(std::span(&request, 1)), {},
                          "make a simulated GPU hang"));
}

SystemRig::~SystemRig() {
  if (gpushared) gpushared->stop(kToEnd);  // SIGTERM lets the supervisor end its agent
  simulation.reset();
  (void)ControlPlane::remove(region);
  ::shm_unlink((region + ".lock").c_str());
  std::error_code none;
  std::filesystem::remove_all("/sys/fs/bpf" + region, none);  // the lines of what still lives
}

std::vector<std::string> SystemRig::usual(std::vector<std::string> more) const {
  std::vector<std::string> command{build_folder() + "/bin/gpushared",
                                   "--sim=" + simulation_socket(), "--socket=" + socket,
                                   "--region=" + region, "--config=" + folder + "/gpushare.toml"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

void SystemRig::begin_agent(std::vector<std::string> more) {
  std::vector<std::string> command = usual(std::move(more));
  command.insert(command.begin(), agent_launcher.begin(), agent_launcher.end());
  gpushared = started({.command = std::move(command), .log = folder + "/agent.log"});
}

void SystemRig::start_agent(std::vector<std::string> more) {
  begin_agent(std::move(more));
  needed(gpushared->await("answer", [&] { return !ask(R"({"op":"hello"})").empty(); }, kToStart));
}

void SystemRig::start_again() {
  const bool has_come = eventually(
      [&] {
        if (gpushared->has_ended())
          gpushared = started({.command = usual({}), .log = folder + "/agent.log"});
        return !ask(R"({"op":"hello"})").empty();
      },
      kToStart);
  if (!has_come) throw std::runtime_error("no agent answers");
}

void SystemRig::kill_both() {
  const pid_t agent = agent_pid();
  gpushared->signal(SIGSTOP);
  ::kill(agent, SIGSTOP);
  gpushared->signal(SIGKILL);
  ::kill(agent, SIGKILL);
  status_of(*gpushared);
  // The dead agent's lock goes with the last of its threads.
  if (!eventually([&] { return ::kill(agent, 0) != 0; }))
    throw std::runtime_error("the agent does not end");
}

void SystemRig::set_layout_version(uint32_t version) const {
  std::fstream file("/dev/shm" + region, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offsetof(RegionHeader, version));
  file.write(reinterpret_cast<const char*>(&version), sizeof version);
  if (!file.flush()) throw std::runtime_error("the region is not to be written");
}

std::unique_ptr<Child> SystemRig::run(std::vector<std::string> options,
                                      std::vector<std::string> command) {
  std::vector<std::string> arguments{"--socket=" + socket, "run"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.emplace_back("--");
  arguments.insert(arguments.end(), command.begin(), command.end());
  return start_in({}, "gpushare", std::move(arguments));
}

std::unique_ptr<Child> SystemRig::start(const std::string& workload,
                                        std::vector<std::string> arguments) {
  return start_in({}, "workloads/" + workload, std::move(arguments));
}

std::unique_ptr<Child> SystemRig::start_attack(const std::string& attack,
                                               std::vector<std::string> arguments) {
  return start_in({"GPUSHARE_SOCKET=" + socket, "GPUSHARE_SHIM_SOCKET=" + folder + "/shim.sock"},
                  "attacks/" + attack, std::move(arguments));
}

std::unique_ptr<Child> SystemRig::start_with_shim(const std::string& workload,
                                                  std::vector<std::string> arguments) {
  return start_in({"LD_PRELOAD=" + build_folder() + "/lib/libgpushare.so",
                   "GPUSHARE_SHIM_SOCKET=" + folder + "/shim.sock"},
                  "workloads/" + workload, std::move(arguments));
}

std::unique_ptr<Child> SystemRig::start_in(std::vector<std::string> environment,
                                           const std::string& program,
                                           std::vector<std::string> arguments) {
  std::vector<std::string> command{build_folder() + "/bin/" + program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  environment.push_back("LD_LIBRARY_PATH=" + build_folder() + "/lib/sim");
  environment.push_back("GPUSHARE_SIM=" + simulation_socket());
  return started({.command = std::move(command),
                  .environment = std::move(environment),
                  .log = folder + "/" + program.substr(program.find('/') + 1) + ".log"});
}

std::unique_ptr<Child> SystemRig::start_run(std::vector<std::string> options,
                                            const std::string& program,
                                            const std::vector<std::string>& arguments) {
  options.insert(options.begin(), {build_folder() + "/bin/gpushare", "--socket=" + socket, "run"});
  options.insert(options.end(), {"--", build_folder() + "/bin/" + program});
  options.insert(options.end(), arguments.begin(), arguments.end());
  return started({.command = std::move(options),
                  .environment = {"LD_LIBRARY_PATH=" + build_folder() + "/lib/sim",
                                  "GPUSHARE_SIM=" + simulation_socket()},
                  .log = folder + "/run.log"});
}

int SystemRig::run_gpushared(std::vector<std::string> arguments) {
  Child child =
      needed(Child::start({.command = usual(std::move(arguments)), .log = folder + "/other.log"}));
  return status_of(child);
}

void SystemRig::write_config(const std::string& text) {
  std::ofstream(folder + "/gpushare.toml") << text;
}

std::string SystemRig::ask(const std::string& request) const {
  const Fd fd = connect_to(socket);
  const std::string line = request + "\n";
  if (!fd.is_open() || ::send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) < 0) return "";
  std::string answer;
  char bytes[65536];
  while (answer.empty() || answer.back() != '\n') {
    const ssize_t n = ::recv(fd.get(), bytes, sizeof bytes, 0);
    if (n <= 0) return "";
    answer.append(bytes, static_cast<std::size_t>(n));
  }
  return answer;
}

bool SystemRig::answers(const std::string& request, const std::string& text) const {
  return ask(request).find(text) != std::string::npos;
}

PlaneSnapshot SystemRig::snapshot() const {
  struct stat file{};
  const bool is_there = ::stat(("/dev/shm" + region).c_str(), &file) == 0 &&
                        file.st_size == static_cast<off_t>(sizeof(Region));
  if (!is_there || file.st_ino != plane_file_) plane_.reset();
  plane_file_ = file.st_ino;
  if (is_there && !plane_)
    if (auto plane = ControlPlane::open_read_only(region)) plane_ = std::move(*plane);
  return plane_ ? take_snapshot(*plane_).value_or(PlaneSnapshot{}) : PlaneSnapshot{};
}

ProcessRecord SystemRig::record(pid_t pid, uint32_t gpu) const {
  for (const auto& [slot, record] : snapshot().processes)
    if (record.pid == pid && record.gpu == gpu) return record;
  return {};
}

TenantRecord SystemRig::tenant(const std::string& name) const {
  for (const auto& [slot, record] : snapshot().tenants)
    if (name == record.name) return record;
  return {};
}

double SystemRig::share_beside(const Child& first, const Child& other, uint32_t gpu) const {
  const ProcessRecord a = record(first.pid(), gpu), b = record(other.pid(), gpu);
  if (a.share_permille > 1000 || b.share_permille > 1000) return 0;
  const double sum = a.share_permille + b.share_permille;
  return sum > 900 ? a.share_permille / sum : 0;
}

std::size_t SystemRig::frozen_groups() const {
  const PlaneSnapshot all = snapshot();
  return static_cast<std::size_t>(
      std::ranges::count_if(all.ledger, [](const LedgerRecord& one) { return one.freezes > 0; }));
}

std::string SystemRig::output(const std::string& of) const {
  std::ifstream file(folder + "/" + of);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace gpushare::test
