// SPDX-License-Identifier: Apache-2.0
// Driver: the system calls that reach the NVIDIA driver. All of nvrm/ makes them through this
// interface, so that tests can put a fake RM behind it. Several threads may call it at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "intercept/event.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare::nvrm {

class Driver {
 public:
  virtual ~Driver() = default;

  // Opens /dev/nvidiactl (minor 255) or /dev/nvidiaN with close-on-exec. Errors: no_such_device
  // when there is no such file or nothing behind it, permission_denied.
  virtual Result<Fd> open(unsigned minor) = 0;
  // N of the /dev/nvidiaN of the GPU at this PCI address ("0000:1b:00.0"); nullopt: not known.
  virtual std::optional<unsigned> minor_of(const std::string& pci) = 0;
  // Makes one ioctl of type 'F'. Returns 0 or an errno value; RM's status is in `argument`.
  virtual int ioctl(int fd, unsigned nr, void* argument, size_t bytes) = 0;
  // Maps what RM_MAP_MEMORY prepared on `fd`, read-only.
  virtual Result<const void*> map(int fd, size_t bytes) = 0;
  virtual void unmap(const void* address, size_t bytes) = 0;
  // Duplicates another process's descriptor (pidfd_getfd). Errors: no_such_process when the process
  // is gone or another one has its pid (a start_ticks of 0 skips that check), no_such_device when
  // the descriptor is no longer one of the driver, bad_file_descriptor when it is closed.
  virtual Result<Fd> fetch(ProcessId process, int fd) = 0;
  // The numbers of a process's descriptors of /dev/nvidiactl, among its first `most`; empty when it
  // is gone. Error: they cannot be listed now (too_many_files_open, not_enough_memory).
  virtual Result<std::vector<int>> control_fds(pid_t pid, size_t most) = 0;
  Result<std::vector<int>> control_fds(pid_t pid) { return control_fds(pid, SIZE_MAX); }
  // Looks for one of these among the next `most` descriptors of a process, from `place` on; 0 is
  // the first place. For processes that hold many. Errors: as control_fds().
  struct Look {
    bool has_found = false;
    std::optional<long> next;  // the place to go on at; nullopt: that was all
  };
  virtual Result<Look> look_for_control_fd(pid_t pid, long place, size_t most) = 0;
  // Whether this process lives.
  virtual Life life(const ProcessId& process) { return life_of(process); }
  // Another number each time that the driver's module is loaded; 0: it is not known.
  virtual uint64_t load() { return 0; }
  // All processes of the machine. Errors: as control_fds().
  virtual Result<std::vector<pid_t>> processes() = 0;
};

// The number in the line "Device Minor:" of a GPU's file /proc/driver/nvidia/gpus/*/information;
// nullopt: there is none.
std::optional<unsigned> minor_in(std::istream& information);

// The machine's driver. It has no state, so any thread may call it.
Driver& system_driver();

}  // namespace gpushare::nvrm
