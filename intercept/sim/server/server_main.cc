// SPDX-License-Identifier: Apache-2.0
// gpushare-sim: serves simulated GPUs in real time, for machines without a GPU. See server.h.
#include <sys/resource.h>

#include <csignal>
#include <cstdio>

#include "intercept/sim/server/server.h"
#include "shmctl/plane/layout.h"
#include "shmctl/program/command_line.h"

namespace gpushare::sim {
namespace {

// How much longer a change of contexts takes on each GPU than on the one before: assumed, a
// thousandth of a turn. GPUs that were out of step meet again after some tenths of a second.
constexpr Nanos kSlowerThanTheOneBefore = 2us;

Server* running = nullptr;

void on_signal(int) { running->stop(); }

// Each program takes a descriptor, so the limit is raised to what the system allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

ExitCode serve(Server::Options options) {
  raise_descriptor_limit();
  const std::string socket = options.socket;
  const size_t gpus = options.gpus.size();
  auto server = Server::listen(std::move(options));
  if (!server) {
    std::fprintf(stderr, "gpushare-sim: %s\n", server.error().message().c_str());
    return kExitFailure;
  }
  running = server->get();
  struct sigaction action{};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  std::fprintf(stderr, "gpushare-sim: %zu simulated GPU%s on %s\n", gpus, gpus == 1 ? "" : "s",
               socket.c_str());
  if (const auto done = (*server)->run(); !done) {
    std::fprintf(stderr, "gpushare-sim: %s\n", done.error().message().c_str());
    return kExitFailure;
  }
  return kExitOk;
}

ExitCode run(const Invocation& in) {
  Server::Options options;
  options.socket = in.text("socket");
  GpuModel gpu;
  if (in.has("memory")) gpu.memory_bytes = in.whole("memory") << 30;
  options.gpus.assign(in.whole("gpus"), gpu);
  Nanos slower{};
  for (GpuModel& each : options.gpus) {
    each.slower_change = slower;
    slower += kSlowerThanTheOneBefore;
  }
  options.parameters.control.attach = in.whole("attach-ms") * 1ms;
  options.parameters.control.teardown = in.whole("teardown-ms") * 1ms;
  options.parameters.control.start = in.whole("start-ms") * 1ms;
  return serve(std::move(options));
}

Command program() {
  return {
      .name = "gpushare-sim",
      .summary = "serve simulated GPUs in real time.",
      .details =
          "It runs until SIGINT or SIGTERM. Programs reach the GPUs through the stand-in "
          "libcuda.so.1 (LD_LIBRARY_PATH), the agent by 'gpushared --sim'.",
      .options = {{"socket", 0, "PATH", "Where to listen", kDefaultSocket, "GPUSHARE_SIM"},
                  number_option("gpus", "N", "How many GPUs", {1, kMaxGpus, true}, "1"),
                  number_option("memory", "GIB", "Memory of each GPU in GiB", {1, 4096, true},
                                "an H200's, 140"),
                  number_option(
                      "attach-ms", "MS",
                      "How long the agent takes to find what a program has that was there "
                      "before it",
                      {0, 10'000, true}, "100"),
                  number_option("teardown-ms", "MS",
                                "How long the driver takes to take down a context, while which it "
                                "does nothing else",
                                {0, 10'000, true}, "0"),
                  number_option(
                      "start-ms", "MS",
                      "How long a program that makes a context holds the driver's lock at a time, "
                      "six times; all that is asked of the driver waits for it, and the program "
                      "is resident on its GPU meanwhile, though nothing runs there. On an H200 it "
                      "is tens of milliseconds",
                      {0, 10'000, true}, "0")},
      .examples = {"gpushare-sim --socket /tmp/sim.sock --gpus 2"},
      .run = run,
  };
}

}  // namespace
}  // namespace gpushare::sim

int main(int argc, char** argv) {
  return gpushare::run_program(gpushare::sim::program(), argc, argv);
}
