// SPDX-License-Identifier: Apache-2.0
// Device: the open file /dev/gpushare. It is an interface so that tests can bring a ring of their
// own. One thread at a time may call.
//
// What was done through the file lasts as long as any descriptor of it: the supervisor opens and
// keeps it and the agent inherits it, so that the module stays as it was while an agent is started
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare::kmod {

class Device {
 public:
  virtual ~Device() = default;
  // For poll(), and for a child process to inherit. The device owns it.
  virtual int fd() const = 0;
  // Makes an ioctl, again when a signal interrupts it. The error has errno's code and `step`.
  virtual Result<> call(unsigned long request, void* argument, const char* step) = 0;
  // Maps a part of the file until the last copy of the result is destroyed. Errors: those of
  // mmap().
  virtual Result<std::shared_ptr<void>> map(uint64_t offset, uint64_t bytes, bool is_writable) = 0;
};

// Opens the file and makes no call yet. The error's detail says what a person can do:
//   no_such_file_or_directory  the module is not loaded
//   device_or_resource_busy    another process has it open
//   operation_not_permitted, permission_denied
Result<std::unique_ptr<Device>> open_device(const std::string& path);
// Takes over a descriptor that was inherited, and sets close-on-exec on it.
Result<std::unique_ptr<Device>> adopt_device(int fd);

}  // namespace gpushare::kmod
