// SPDX-License-Identifier: Apache-2.0
// A program that looks from outside like one with the shim, without CUDA: it takes its slot, goes
// where that says, and announces iterations that take 24 ms divided by its groups. It runs until
// SIGTERM, or as its argument says:
//
//   iterating_program [silent | ends | stays | nothing]
//
// silent: launches, no iterations. ends: exit code 3 after 40 iterations. stays: never moves.
// nothing: asks for no slot.
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "shmctl/base/fd.h"
#include "shmctl/base/unix_socket.h"
#include "shmctl/shim/protocol.h"
#include "shmctl/shim/slot.h"

namespace gpushare {
namespace {

using std::chrono::microseconds;

ShimSlot* take_slot() {
  const char* const path = std::getenv(kShimSocketVariable);
  if (path == nullptr) return nullptr;
  const auto socket = connect_to_socket(path, "ask for a slot");
  if (!socket) return nullptr;
  DescriptorMessage message;
  if (::recvmsg(socket->get(), message.get(), MSG_CMSG_CLOEXEC) != 1) return nullptr;
  const Fd file(message.taken().slot);
  void* const mapped =
      ::mmap(nullptr, kShimSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<ShimSlot*>(mapped);
}

void note_iteration(ShimIterations& own, microseconds took) {
  const auto ns = static_cast<uint64_t>(took.count()) * 1000;
  ++own.sequence;
  own.source = ShimSource::kAnnounced;
  own.confidence = 1000;
  ++own.begun;
  ++own.ended;
  own.busy_ns += ns;
  own.latency_ns += ns;
  ++own.sequence;
}

int run(const std::string& how) {
  std::puts("hello from the program");
  std::fflush(stdout);
  ShimSlot* const slot = how == "nothing" ? nullptr : take_slot();
  for (int i = 0;; ++i) {
    if (slot == nullptr) {
      std::this_thread::sleep_for(microseconds(1000));
      continue;
    }
    ++slot->stripes[0].launches;
    if (how != "stays") slot->gpus[0].applied = slot->gpus[0].wanted.load();
    const int groups = std::max(std::popcount(slot->gpus[0].applied.load()), 1);
    const microseconds took(24'000 / groups);
    std::this_thread::sleep_for(took);
    if (how != "silent") note_iteration(slot->iterations, took);
    if (how == "ends" && i == 40) return 3;
  }
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) { return gpushare::run(argc > 1 ? argv[1] : ""); }
