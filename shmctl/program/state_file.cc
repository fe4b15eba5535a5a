// SPDX-License-Identifier: Apache-2.0
#include "shmctl/program/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "shmctl/base/fd.h"

namespace gpushare {
namespace {

Result<> write_all(const Fd& fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error("write kept file", path);
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fsync(fd.get()) != 0) return errno_error("sync kept file", path);
  return {};
}

}  // namespace

Result<std::string> read_state_file(const std::string& path, std::size_t most_bytes) {
  // A pipe would keep us waiting for its other end.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) {
    if (errno == ENOENT) return std::string();
    return errno_error("open kept file", path);
  }
  struct stat about{};
  if (::fstat(fd.get(), &about) != 0) return errno_error("open kept file", path);
  if (!S_ISREG(about.st_mode))
    return make_error(std::errc::invalid_argument, "open kept file", path + " is no regular file");
  std::string text;
  char part[4096];
  for (;;) {
    const ssize_t count = ::read(fd.get(), part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error("read kept file", path);
    if (count == 0) return text;
    text.append(part, static_cast<std::size_t>(count));
    if (text.size() > most_bytes)
      return make_error(std::errc::file_too_large, "read kept file", path);
  }
}

Result<> replace_state_file(const std::string& path, std::string_view text, mode_t mode) {
  const std::string beside = path + ".new";
  ::unlink(beside.c_str());
  const Fd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!fd.is_open()) return errno_error("create kept file", beside);
  auto written = write_all(fd, text, beside);
  if (written && ::rename(beside.c_str(), path.c_str()) != 0)
    written = errno_error("replace kept file", path);
  if (!written) ::unlink(beside.c_str());
  return written;
}

}  // namespace gpushare
