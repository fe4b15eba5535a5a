// SPDX-License-Identifier: Apache-2.0
// The system calls that reach the NVIDIA driver: the edge of nvrm/. Tests put a fake RM behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "intercept/event.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare::nvrm {

class Driver {
 public:
  virtual ~Driver() = default;

  // Opens /dev/nvidiactl (minor 255) or /dev/nvidiaN, close-on-exec. no_such_device when there is
  // none, permission_denied.
  virtual Result<Fd> open(unsigned minor) = 0;
  // One ioctl of type 'F'. Returns 0 or an errno value; the RM status is inside `argument`.
  virtual int ioctl(int fd, unsigned nr, void* argument, size_t bytes) = 0;
  // Maps what RM_MAP_MEMORY prepared on `fd`, read-only.
  virtual Result<const void*> map(int fd, size_t bytes) = 0;
  virtual void unmap(const void* address, size_t bytes) = 0;
  // A duplicate of another process's descriptor (pidfd_getfd). no_such_process when it is gone or
  // its pid now belongs to another process; start_ticks 0 skips that check.
  virtual Result<Fd> fetch(ProcessId process, int fd) = 0;
  // Numbers of a process's descriptors of /dev/nvidiactl; empty when it is gone.
  virtual std::vector<int> control_fds(pid_t pid) = 0;
  virtual std::vector<pid_t> processes() = 0;
};

// The machine's. Stateless; every instance is the same.
Driver& system_driver();

}  // namespace gpushare::nvrm
