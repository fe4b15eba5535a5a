// SPDX-License-Identifier: Apache-2.0
// How a process gets its slot. It connects to the agent's socket and sends nothing; the kernel
// tells the agent which process it is. The agent sends one byte with descriptors (SCM_RIGHTS) and
// closes the connection: a sealed memfd of kShimSlotBytes and, from version 3 of this protocol on,
// an eventfd by which the process wakes the agent. A process of version 2 takes the first one; an
// agent of version 2 sends no second one. Version 4 has credit in the slot (ShimCredit): a process
// of an older version does not take the feature, an older agent does not ask for it. Version 5
// sends a third descriptor, a page that says whether the agent lives (life.h); an older process has
// no room for it, and the kernel leaves it out. If the agent wants nothing of the process, it
// closes the connection without sending. Constants, and a value for one thread.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace gpushare {

inline constexpr const char* kShimSocketPath = "/run/gpushare/shim.sock";
inline constexpr const char* kShimSocketVariable = "GPUSHARE_SHIM_SOCKET";  // another path

// The variable that makes a program a client of an MPS server, and the shim's mark, with the same
// value, that the shim has set it. Children inherit both, also those that are to be no clients.
inline constexpr const char* kMpsPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";
inline constexpr const char* kMpsMarkVariable = "GPUSHARE_MPS_PIPE";

// The message with that byte and room for those descriptors, for sendmsg() and recvmsg().
class DescriptorMessage {
 public:
  DescriptorMessage() : DescriptorMessage(nullptr, 0) {}
  // The same with these bytes in place of the one; they outlive it.
  DescriptorMessage(void* data, std::size_t bytes)
      : part_{data == nullptr ? &byte_ : data, data == nullptr ? 1 : bytes} {
    message_.msg_iov = &part_;
    message_.msg_iovlen = 1;
    message_.msg_control = control_;
    message_.msg_controllen = sizeof control_;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  msghdr* get() { return &message_; }

  // `wake` is left out where it is -1, and with it `life`, which also may be.
  void put(int slot, int wake = -1, int life = -1) {
    const int descriptors[] = {slot, wake, life};
    const std::size_t bytes = sizeof(int) * (wake < 0 ? 1 : life < 0 ? 2 : 3);
    message_.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message_);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), descriptors, bytes);
  }
  // The descriptors that came; the caller owns them. -1: it did not come.
  struct Taken {
    int slot = -1, wake = -1, life = -1;
  };
  Taken taken() const {
    int descriptors[] = {-1, -1, -1};
    const cmsghdr* header = CMSG_FIRSTHDR(&message_);
    if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
      std::memcpy(descriptors, CMSG_DATA(header),
                  std::min<std::size_t>(header->cmsg_len - CMSG_LEN(0), sizeof descriptors));
    return {descriptors[0], descriptors[1], descriptors[2]};
  }

 private:
  char byte_ = 'g';
  iovec part_;
  alignas(cmsghdr) char control_[CMSG_SPACE(3 * sizeof(int))] = {};
  msghdr message_{};
};

}  // namespace gpushare
