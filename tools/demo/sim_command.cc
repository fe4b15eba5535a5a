// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/sim_command.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "shmctl/plane/layout.h"
#include "tools/base/beside.h"
#include "tools/base/report.h"
#include "tools/demo/setup.h"

namespace gpushare {
namespace {

constexpr Nanos kForTheAgent = 50ms;

// Programs of gpushare and, in a build folder, small CUDA programs to try it with.
std::string search_path() {
  const std::string bin = DemoSetup::build_folder() + "/bin";
  const char* const before = std::getenv("PATH");
  std::string path = bin;
  if (std::filesystem::is_directory(bin + "/workloads")) path += ":" + bin + "/workloads";
  return "PATH=" + path + (before == nullptr ? "" : std::string(":") + before);
}

// Waits for the program's end. What ends this program ends that one; an interrupt of the terminal
// has reached both, and is that one's to answer.
int outlive(const Child& program) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGCHLD})
    ::sigaddset(&signals, number);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  while (!program.has_ended()) {
    const timespec pause = timespec_of(kForTheAgent);
    const int number = ::sigtimedwait(&signals, nullptr, &pause);
    if (number == SIGTERM || number == SIGHUP) program.signal(number);
  }
  return program.status();
}

ExitCode simulate(const Invocation& invocation) {
  if (find_simulated_driver().empty())
    return report({{},
                   "start simulated GPUs",
                   "lib/sim/libcuda.so.1, the stand-in for the driver's library, is missing"});
  std::string config;
  if (const auto path = invocation.value("config")) {
    std::ifstream file(*path);
    if (!file) return report(errno_error("read the configuration", *path).error());
    config.assign(std::istreambuf_iterator<char>(file), {});
  }
  Wait wait = Wait::until_interrupted();
  auto setup = DemoSetup::open({.is_simulated = true,
                                .config = std::move(config),
                                .gpus = static_cast<uint32_t>(invocation.whole("gpus"))},
                               wait);
  if (!setup) return report(setup.error());
  std::vector<std::string> command = invocation.arguments;
  if (command.empty()) {
    const char* const shell = std::getenv("SHELL");
    command = {shell == nullptr || *shell == '\0' ? "/bin/sh" : shell};
    fmt::print(
        stderr,
        "gpushare: {} runs on simulated GPUs, with an agent of its own; it all ends with 'exit'\n",
        command[0]);
  }
  Launch launch{.command = command,
                .environment = (*setup)->environment(),
                .is_shown = true,
                .has_our_output = true};
  launch.environment.push_back(search_path());
  int status = 0;
  {
    const auto program = Child::start(std::move(launch));
    if (!program) {
      report(program.error());
      return program.error().code == std::errc::no_such_file_or_directory ? kExitNotFound
                                                                          : kExitCannotRun;
    }
    status = outlive(*program);
  }
  if (const auto closed = (*setup)->close(); !closed) report(closed.error());
  return static_cast<ExitCode>(status);
}

}  // namespace

Command sim_command() {
  return {
      .name = "sim",
      .summary = "Start a shell or a program on simulated GPUs, with an agent of its own.",
      .arguments = "[--] [PROGRAM] [ARGUMENT...]",
      .details =
          "For trying gpushare without a GPU, as any user. All commands that are given in it ask "
          "that agent, and CUDA programs that know the simulated GPUs run on them: those of "
          "bin/workloads. When the shell or PROGRAM ends, so does all of it, and its exit code is "
          "that of this command.",
      .options = {number_option("gpus", "N", "How many simulated GPUs", {1, kMaxGpus, true}, "1"),
                  {"config", 'c', "FILE",
                   "The agent's configuration, gpushare.toml(5); otherwise it has none"}},
      .examples = {"gpushare sim",
                   "gpushare sim -- sh -c 'spin --seconds 5 & sleep 3; gpushare status; wait'"},
      .starts_program = true,
      .run = simulate};
}

}  // namespace gpushare
