// SPDX-License-Identifier: Apache-2.0
#include "tools/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "shmctl/base/fd.h"

namespace gpushare {
namespace {

Result<> write_all(const Fd& fd, const std::string& path, std::string_view contents) {
  while (!contents.empty()) {
    const ssize_t count = ::write(fd.get(), contents.data(), contents.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error("write", path);
    contents.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

}  // namespace

Result<> write_whole_file(const std::string& path, std::string_view contents) {
  struct stat existing{};
  const bool is_special = ::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode);
  const std::string target = is_special ? path : fmt::format("{}.{}.tmp", path, ::getpid());
  const int flags = is_special ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL;
  Fd fd(::open(target.c_str(), flags | O_CLOEXEC, 0644));
  if (!fd.is_open()) return errno_error("create", path);
  auto written = write_all(fd, path, contents);
  if (is_special) return written;
  if (written && ::rename(target.c_str(), path.c_str()) != 0) written = errno_error("create", path);
  if (!written) ::unlink(target.c_str());
  return written;
}

}  // namespace gpushare
