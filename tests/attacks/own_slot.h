// SPDX-License-Identifier: Apache-2.0
// Asks the agent for a slot as the shim does, for programs that write into it what they like.
#pragma once

#include <sys/mman.h>

#include <cstdlib>

#include "shmctl/base/fd.h"
#include "shmctl/base/unix_socket.h"
#include "shmctl/shim/protocol.h"
#include "shmctl/shim/slot.h"

namespace gpushare::workloads {

// nullptr: there is none to be had. It stays mapped until the process ends.
inline ShimSlot* ask_for_a_slot() {
  const char* path = std::getenv(kShimSocketVariable);
  const auto socket = connect_to_socket(path == nullptr ? kShimSocketPath : path, "ask for a slot");
  DescriptorMessage message;
  if (!socket || ::recvmsg(socket->get(), message.get(), MSG_CMSG_CLOEXEC) != 1) return nullptr;
  const Fd file(message.taken().slot);
  void* slot = ::mmap(nullptr, kShimSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return slot == MAP_FAILED ? nullptr : static_cast<ShimSlot*>(slot);
}

}  // namespace gpushare::workloads
