// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 35
#include "tests/intercept/bpf/fake_driver.h"

#include <fcntl.h>
#include <fuse3/fuse.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace gpushare {
namespace {

constexpr const char* kFile = "/driver";

int get_attributes(const char* path, struct stat* attributes, fuse_file_info*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->st_nlink = 1;
  if (std::strcmp(path, "/") == 0)
    attributes->st_mode = S_IFDIR | 0755;
  else if (std::strcmp(path, kFile) == 0)
    attributes->st_mode = S_IFREG | 0666;
  else
    return -ENOENT;
  return 0;
}

template <class Alloc>
void answer_alloc(Alloc& arg) {
  static uint32_t next_handle = 0x5C000001;
  if (arg.h_new == FakeDriver::kRefusedHandle) {
    arg.status = GS_NV_ERR_INVALID_ARGUMENT;
    return;
  }
  if (arg.h_new == 0) arg.h_new = next_handle++;
  arg.status = GS_NV_OK;
}

int answer(const char*, unsigned command, void*, fuse_file_info*, unsigned, void* data) {
  switch (_IOC_NR(command)) {
    case GS_NV_ESC_RM_ALLOC:
      if (_IOC_SIZE(command) == sizeof(gs_nvos64))
        answer_alloc(*static_cast<gs_nvos64*>(data));
      else
        answer_alloc(*static_cast<gs_nvos21*>(data));
      return 0;
    case GS_NV_ESC_RM_FREE:
      static_cast<gs_nvos00*>(data)->status = GS_NV_OK;
      return 0;
    case GS_NV_ESC_RM_CONTROL:
      static_cast<gs_nvos54*>(data)->status = GS_NV_OK;
      return 0;
    case GS_NV_ESC_CARD_INFO:
      return -EINVAL;
    default:
      return 0;
  }
}

// Runs in the child and serves until the mount is removed. A byte in `ready` says that it is
// mounted.
[[noreturn]] void serve(const std::string& directory, int ready) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  fuse_operations operations{};
  operations.getattr = get_attributes;
  operations.ioctl = answer;
  char name[] = "fake_driver";
  char* arguments[] = {name, nullptr};
  fuse_args args{1, arguments, 0};
  fuse* const server = fuse_new(&args, &operations, sizeof operations, nullptr);
  if (server == nullptr || fuse_mount(server, directory.c_str()) != 0) ::_exit(1);
  if (::write(ready, "", 1) != 1) ::_exit(1);
  fuse_loop(server);
  ::_exit(0);
}

}  // namespace

Result<FakeDriver> FakeDriver::mount() {
  // The mount is private, so that none remains however the test ends.
  if (::unshare(CLONE_NEWNS) != 0) return errno_error("unshare mount namespace");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return errno_error("make mounts private");
  char directory[] = "/tmp/fake_driver_XXXXXX";
  if (::mkdtemp(directory) == nullptr) return errno_error("make directory", directory);
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) return errno_error("make pipe");
  const Fd reader(ready[0]);
  Fd writer(ready[1]);
  const pid_t server = ::fork();
  if (server < 0) return errno_error("fork");
  if (server == 0) serve(directory, writer.get());
  FakeDriver driver(directory, server);
  writer.reset();
  char byte = 0;
  if (::read(reader.get(), &byte, 1) != 1)
    return make_error(std::errc::not_supported, "mount FUSE file system", "/dev/fuse");
  return driver;
}

FakeDriver::FakeDriver(FakeDriver&& other) noexcept
    : directory_(std::move(other.directory_)), server_(std::exchange(other.server_, 0)) {}

FakeDriver::~FakeDriver() {
  if (server_ == 0) return;
  ::umount2(directory_.c_str(), MNT_DETACH);
  ::kill(server_, SIGKILL);
  ::waitpid(server_, nullptr, 0);
  ::rmdir(directory_.c_str());
}

Fd FakeDriver::open() const {
  Fd fd(::open((directory_ + kFile).c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.is_open()) std::abort();
  return fd;
}

void rm_call(int fd, unsigned nr, void* argument, size_t size) {
  const unsigned long command = _IOC(_IOC_READ | _IOC_WRITE, GS_NV_IOCTL_TYPE, nr, size);
  if (::ioctl(fd, command, argument) != 0) std::abort();
}

Made rm_alloc(int fd, uint32_t client, uint32_t parent, uint32_t class_id, void* params,
              uint32_t params_size, uint32_t handle) {
  const auto address = reinterpret_cast<uintptr_t>(params);
  gs_nvos64 arg{client, parent, handle, class_id, address, 0, params_size, 0, 0, 0};
  rm_call(fd, GS_NV_ESC_RM_ALLOC, &arg, sizeof arg);
  return {arg.h_new, arg.status};
}

Made rm_alloc_nvos21(int fd, uint32_t client, uint32_t parent, uint32_t class_id, void* params) {
  gs_nvos21 arg{client, parent, 0, class_id, reinterpret_cast<uintptr_t>(params), 0, 0};
  rm_call(fd, GS_NV_ESC_RM_ALLOC, &arg, sizeof arg);
  return {arg.h_new, arg.status};
}

void rm_free(int fd, uint32_t client, uint32_t object) {
  gs_nvos00 arg{client, 0, object, 0};
  rm_call(fd, GS_NV_ESC_RM_FREE, &arg, sizeof arg);
}

void rm_control(int fd, uint32_t client, uint32_t object, uint32_t cmd, void* params,
                uint32_t params_size) {
  gs_nvos54 arg{client, object, cmd, 0, reinterpret_cast<uintptr_t>(params), params_size, 0};
  rm_call(fd, GS_NV_ESC_RM_CONTROL, &arg, sizeof arg);
}

}  // namespace gpushare
