// SPDX-License-Identifier: Apache-2.0
#include "intercept/kmod/device.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cerrno>

namespace gpushare::kmod {
namespace {

class SystemDevice final : public Device {
 public:
  explicit SystemDevice(Fd file) : file_(std::move(file)) {}

  int fd() const override { return file_.get(); }

  Result<> call(unsigned long request, void* argument, const char* step) override {
    int status = -1;
    do {
      status = ::ioctl(file_.get(), request, argument);
    } while (status != 0 && errno == EINTR);
    if (status != 0) return errno_error(step);
    return {};
  }

  Result<std::shared_ptr<void>> map(uint64_t offset, uint64_t bytes, bool is_writable) override {
    const int access = is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void* memory =
        ::mmap(nullptr, bytes, access, MAP_SHARED, file_.get(), static_cast<off_t>(offset));
    if (memory == MAP_FAILED) return errno_error("map the kernel module's event ring");
    return std::shared_ptr<void>(memory, [bytes](void* start) { ::munmap(start, bytes); });
  }

 private:
  Fd file_;
};

std::string explained(int code, const std::string& path) {
  switch (code) {
    case ENOENT:
    case ENXIO:
    case ENODEV:
      return path + " (the kernel module is not loaded)";
    case EBUSY:
      return path + " (another gpushared has it open)";
    case EACCES:
    case EPERM:
      return path + " (this takes root)";
    default:
      return path;
  }
}

}  // namespace

Result<std::unique_ptr<Device>> open_device(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) {
    const int code = errno;
    return std::unexpected(Error{std::error_code(code, std::generic_category()),
                                 "open the kernel module's device", explained(code, path)});
  }
  return std::make_unique<SystemDevice>(std::move(file));
}

Result<std::unique_ptr<Device>> adopt_device(int fd) {
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    return errno_error("take over the kernel module's device");
  return std::make_unique<SystemDevice>(Fd(fd));
}

}  // namespace gpushare::kmod
