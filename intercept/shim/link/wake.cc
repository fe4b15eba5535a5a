// SPDX-License-Identifier: Apache-2.0
#include "intercept/shim/link/wake.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "intercept/shim/link/attach.h"
#include "intercept/shim/link/quiet.h"

namespace gpushare::shim {
namespace {

// Where a program's own descriptors do not come without intent. With a lower limit of open files
// the number that came is kept.
constexpr int kHighNumber = 900;

// System calls made directly, because libc's write() and close() are points at which
// pthread_cancel() may end the thread, and its fstat() is not in every version.
bool inode_of(int descriptor, uint64_t* inode) {
  struct stat about{};
  if (::syscall(SYS_fstat, descriptor, &about) != 0 || about.st_mode >> 12 != 0) return false;
  *inode = about.st_ino;
  return true;
}

}  // namespace

// The word holds the inode, which all eventfds of a machine share and no file, socket or pipe has,
// and 1 + the descriptor. Zero is none.
void keep_wake(int descriptor) {
  const int high = ::fcntl(descriptor, F_DUPFD_CLOEXEC, kHighNumber);
  if (high >= 0) ::syscall(SYS_close, descriptor);
  const int kept = high >= 0 ? high : descriptor;
  uint64_t inode = 0;
  if (!inode_of(kept, &inode)) return;
  this_process().wake.store(inode << 32 | (static_cast<uint64_t>(kept) + 1),
                            std::memory_order_release);
}

void wake_agent() {
  const uint64_t word = this_process().wake.load(std::memory_order_acquire);
  if (word == 0) return;
  const KeepErrno errno_of_the_program;
  const int descriptor = static_cast<int>(word & 0xFFFFFFFF) - 1;
  uint64_t inode = 0;
  if (!inode_of(descriptor, &inode) || inode << 32 != (word >> 32) << 32) return;
  constexpr uint64_t kOne = 1;
  ::syscall(SYS_write, descriptor, &kOne, sizeof kOne);
}

}  // namespace gpushare::shim
