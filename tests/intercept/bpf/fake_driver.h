// SPDX-License-Identifier: Apache-2.0
// FakeDriver: a file that answers RM ioctls as the NVIDIA driver does, so that tests of the probe
// make real system calls without a driver. It is a FUSE file system that a child process serves,
// and only this process and its children see it. Also the calls that a program makes on it. One
// thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "intercept/nvrm/abi.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare {

class FakeDriver {
 public:
  // Moves the calling process, which must have one thread, into a mount namespace of its own.
  // Needs root and /dev/fuse.
  static Result<FakeDriver> mount();
  FakeDriver(FakeDriver&& other) noexcept;
  FakeDriver& operator=(FakeDriver&&) = delete;
  ~FakeDriver();

  // Opens the file anew, with close-on-exec as libcuda does.
  Fd open() const;

  static constexpr uint32_t kRefusedHandle = 0xBAD;  // an allocation with this handle is refused

 private:
  FakeDriver(std::string directory, pid_t server)
      : directory_(std::move(directory)), server_(server) {}

  std::string directory_;
  pid_t server_ = 0;
};

// The calls of a program. Each aborts the process unless ioctl(2) succeeds.
struct Made {
  uint32_t handle = 0;
  uint32_t status = 0;
};
Made rm_alloc(int fd, uint32_t client, uint32_t parent, uint32_t class_id, void* params = nullptr,
              uint32_t params_size = 0, uint32_t handle = 0);
Made rm_alloc_nvos21(int fd, uint32_t client, uint32_t parent, uint32_t class_id, void* params);
void rm_free(int fd, uint32_t client, uint32_t object);
void rm_control(int fd, uint32_t client, uint32_t object, uint32_t cmd, void* params,
                uint32_t params_size);
// Makes any command with `size` bytes at `argument`.
void rm_call(int fd, unsigned nr, void* argument, size_t size);

}  // namespace gpushare
