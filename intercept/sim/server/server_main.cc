// SPDX-License-Identifier: Apache-2.0
// gpushare-sim: serves simulated GPUs in real time, for machines without a GPU. See server.h.
#include <getopt.h>
#include <sys/resource.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "intercept/sim/server/server.h"
#include "shmctl/plane/layout.h"

namespace {

using gpushare::sim::GpuModel;
using gpushare::sim::Server;

constexpr char kHelp[] =
    R"(Usage: gpushare-sim [--socket PATH] [--gpus N] [--memory GIB]

Serves simulated GPUs in real time, until SIGINT or SIGTERM. Programs reach them through the stand-in
libcuda.so.1 (LD_LIBRARY_PATH), the agent by `gpushared --sim`.

  --socket PATH  where to listen (default: $GPUSHARE_SIM, else %s)
  --gpus N       how many GPUs, 1 to %u (default 1)
  --memory GIB   memory of each GPU in GiB, 1 to 4096 (default: an H200's, 140)
  --help         this text
)";

Server* running = nullptr;

void on_signal(int) { running->stop(); }

int usage_error(const char* problem, const char* value) {
  std::fprintf(stderr, "gpushare-sim: %s '%s'; see gpushare-sim --help\n", problem, value);
  return 2;
}

bool parse_number(const char* text, uint32_t least, uint32_t most, uint32_t& number) {
  const char* const end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, number);
  return error == std::errc{} && stopped == end && number >= least && number <= most;
}

// Each program takes a descriptor, so the limit is raised to what the system allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int serve(Server::Options options) {
  raise_descriptor_limit();
  const std::string socket = options.socket;
  const size_t gpus = options.gpus.size();
  auto server = Server::listen(std::move(options));
  if (!server) {
    std::fprintf(stderr, "gpushare-sim: %s\n", server.error().message().c_str());
    return 1;
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
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Server::Options options;
  if (const char* socket = std::getenv("GPUSHARE_SIM"); socket != nullptr && *socket != '\0')
    options.socket = socket;
  uint32_t gpus = 1;
  uint32_t memory_gib = 0;
  enum { kSocket = 1, kGpus, kMemory, kHelpAsked };
  const option known[] = {{"socket", required_argument, nullptr, kSocket},
                          {"gpus", required_argument, nullptr, kGpus},
                          {"memory", required_argument, nullptr, kMemory},
                          {"help", no_argument, nullptr, kHelpAsked},
                          {}};
  for (int each = 0; (each = ::getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    switch (each) {
      case kSocket:
        options.socket = optarg;
        break;
      case kGpus:
        if (!parse_number(optarg, 1, gpushare::kMaxGpus, gpus))
          return usage_error("--gpus takes a number from 1 to 16, not", optarg);
        break;
      case kMemory:
        if (!parse_number(optarg, 1, 4096, memory_gib))
          return usage_error("--memory takes GiB from 1 to 4096, not", optarg);
        break;
      case kHelpAsked:
        std::printf(kHelp, gpushare::sim::kDefaultSocket, gpushare::kMaxGpus);
        return 0;
      default:
        return 2;  // getopt has said what is wrong
    }
  }
  if (optind < argc) return usage_error("takes options only, not", argv[optind]);
  GpuModel gpu;
  if (memory_gib != 0) gpu.memory_bytes = uint64_t{memory_gib} << 30;
  options.gpus.assign(gpus, gpu);
  return serve(std::move(options));
}
