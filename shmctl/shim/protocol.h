// SPDX-License-Identifier: Apache-2.0
// How a process gets its slot. It connects to the agent's socket and sends nothing; the kernel
// tells the agent which process it is. The agent sends one byte with a descriptor (SCM_RIGHTS), a
// sealed memfd of kShimSlotBytes, and closes the connection. If it wants nothing of the process, it
// closes the connection without sending. Constants, and a value for one thread.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>

namespace gpushare {

inline constexpr const char* kShimSocketPath = "/run/gpushare/shim.sock";
inline constexpr const char* kShimSocketVariable = "GPUSHARE_SHIM_SOCKET";  // another path

// The variable that makes a program a client of an MPS server, and the shim's mark, with the same
// value, that the shim has set it. Children inherit both, also those that are to be no clients.
inline constexpr const char* kMpsPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";
inline constexpr const char* kMpsMarkVariable = "GPUSHARE_MPS_PIPE";

// The message with that byte and room for that descriptor, for sendmsg() and recvmsg().
class DescriptorMessage {
 public:
  DescriptorMessage() {
    message_.msg_iov = &part_;
    message_.msg_iovlen = 1;
    message_.msg_control = control_;
    message_.msg_controllen = sizeof control_;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  msghdr* get() { return &message_; }

  void put(int descriptor) {
    cmsghdr* header = CMSG_FIRSTHDR(&message_);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  // The descriptor that came; the caller owns it. -1: none came.
  int taken() const {
    const cmsghdr* header = CMSG_FIRSTHDR(&message_);
    if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
      return -1;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return descriptor;
  }

 private:
  char byte_ = 'g';
  iovec part_{&byte_, 1};
  alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(int))] = {};
  msghdr message_{};
};

}  // namespace gpushare
