// SPDX-License-Identifier: Apache-2.0
// A file that answers RM ioctls as the NVIDIA driver does, for tests of the probe: real system
// calls, no driver. A FUSE file system served by a child process, visible to this process and its
// children only. Also the calls that a program makes on it.
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

  // A new open of the file, close-on-exec like the real driver's user library does.
  Fd open() const;

  static constexpr uint32_t kRefusedHandle = 0xBAD;  // an allocation under this name is refused

 private:
  FakeDriver(std::string directory, pid_t server)
      : directory_(std::move(directory)), server_(server) {}

  std::string directory_;
  pid_t server_ = 0;
};

// The calls. Each aborts the process unless ioctl(2) succeeds.
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
// Any command, by its size; `size` bytes at `argument`.
void rm_call(int fd, unsigned nr, void* argument, size_t size);

}  // namespace gpushare
