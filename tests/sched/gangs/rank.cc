// SPDX-License-Identifier: Apache-2.0
// sim_rank GPU COMMUNICATOR RANKS FILE: a rank of a data-parallel job on the simulated GPUs, until
// it is killed. A step is a kernel of its own of 3 ms and a collective of 2 ms with the other
// ranks, as the ranks of NCCL's all-reduce. The stand-in libcuda.so.1 has no collectives, so it
// speaks to gpushare-sim itself. How many steps it has made is in FILE, a number of 8 bytes.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "intercept/sim/wire/client.h"

namespace gpushare::sim {
namespace {

constexpr uint64_t kOwnNs = 3'000'000, kTogetherNs = 2'000'000;

int run(uint32_t gpu, uint64_t communicator, uint32_t ranks, const char* path) {
  const char* const server = std::getenv("GPUSHARE_SIM");
  auto client = Client::connect(server == nullptr ? kDefaultSocket : server, Role::kProgram);
  const int file = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (!client || file < 0) return 1;
  const auto context = (*client)->create_context(gpu);
  if (!context) return 1;
  uint64_t sequence = 0, steps = 0;
  const auto work = [&](WorkKind kind, uint64_t ns) {
    Work work{};
    work.sequence = ++sequence;
    work.context = context->context;
    work.kind = kind;
    work.amount = ns;
    work.sm_ppm = 1'000'000;
    if (kind == WorkKind::kCollective) {
      work.ranks = ranks;
      work.communicator = communicator;
    }
    return (*client)->submit(work);
  };
  while (work(WorkKind::kKernel, kOwnNs) && work(WorkKind::kCollective, kTogetherNs) &&
         (*client)->wait(sequence)) {
    ++steps;
    if (::pwrite(file, &steps, sizeof steps, 0) != sizeof steps) return 1;
  }
  return 1;  // the simulation is gone
}

}  // namespace
}  // namespace gpushare::sim

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: sim_rank GPU COMMUNICATOR RANKS FILE\n", stderr);
    return 2;
  }
  return gpushare::sim::run(static_cast<uint32_t>(std::atoi(argv[1])),
                            static_cast<uint64_t>(std::atoll(argv[2])),
                            static_cast<uint32_t>(std::atoi(argv[3])), argv[4]);
}
