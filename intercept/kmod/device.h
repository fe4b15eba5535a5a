// SPDX-License-Identifier: Apache-2.0
// Device: the open file /dev/gpushare, and the one place that speaks to it. A seam: tests bring a
// ring of their own. One thread.
//
// What is done through the file lasts as long as the file has a descriptor anywhere: the supervisor
// opens it and keeps it, the agent inherits it, so that programs which start while an agent is
// started again find the module as before.
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
  virtual int fd() const = 0;  // for poll() and to hand on; owned by the device
  // An ioctl. `step` is for the error, whose code is errno's.
  virtual Result<> call(unsigned long request, void* argument, const char* step) = 0;
  // Mapped until the last copy of the result goes.
  virtual Result<std::shared_ptr<void>> map(uint64_t offset, uint64_t bytes, bool is_writable) = 0;
};

// The file, and nothing said to it yet. Errors say what to do about them:
//   no_such_file_or_directory  the module is not loaded
//   device_or_resource_busy    someone else has it open
//   operation_not_permitted, permission_denied
Result<std::unique_ptr<Device>> open_device(const std::string& path);
// One that was inherited; close-on-exec from here on.
Result<std::unique_ptr<Device>> adopt_device(int fd);

}  // namespace gpushare::kmod
