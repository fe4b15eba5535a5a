// SPDX-License-Identifier: Apache-2.0
// How a process gets its slot: it connects to this socket and says nothing; the kernel says who it
// is. It receives one byte with a descriptor (SCM_RIGHTS), a sealed memfd of kShimSlotBytes, and
// the connection is closed; or it is closed without, when the agent wants nothing of it.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>

namespace gpushare {

inline constexpr const char* kShimSocketPath = "/run/gpushare/shim.sock";
inline constexpr const char* kShimSocketVariable = "GPUSHARE_SHIM_SOCKET";

// What makes a program a client of an MPS server, and our mark that it is not the program's own:
// both are inherited, also by children that are to be none.
inline constexpr const char* kMpsPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";
inline constexpr const char* kMpsMarkVariable = "GPUSHARE_MPS_PIPE";

// That byte, with room for that descriptor: for sendmsg() and recvmsg().
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
  // What came; -1: none.
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
