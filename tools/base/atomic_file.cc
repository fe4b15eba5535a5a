// SPDX-License-Identifier: Apache-2.0
#include "tools/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

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

Result<WholeFile> WholeFile::open(const std::string& path) {
  if (path == "-") return WholeFile("standard output", "", Fd(::dup(STDOUT_FILENO)));
  struct stat existing{};
  const bool is_special = ::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode);
  const std::string draft = is_special ? "" : fmt::format("{}.{}.tmp", path, ::getpid());
  const int flags = is_special ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL;
  const auto create = [&] {
    return Fd(::open(is_special ? path.c_str() : draft.c_str(), flags | O_CLOEXEC, 0644));
  };
  Fd fd = create();
  // Left by a process of the same number that was killed; in a container that is always the same.
  if (!fd.is_open() && errno == EEXIST && ::unlink(draft.c_str()) == 0) fd = create();
  if (!fd.is_open()) return errno_error("create", path);
  return WholeFile(path, draft, std::move(fd));
}

WholeFile::WholeFile(WholeFile&& other) noexcept
    : path_(std::move(other.path_)),
      draft_(std::exchange(other.draft_, "")),
      fd_(std::move(other.fd_)) {}

WholeFile::~WholeFile() {
  if (!draft_.empty()) ::unlink(draft_.c_str());
}

Result<> WholeFile::write(std::string_view contents) {
  if (auto written = write_all(fd_, path_, contents); !written) return written;
  if (draft_.empty()) return {};
  if (::rename(draft_.c_str(), path_.c_str()) != 0) return errno_error("create", path_);
  draft_.clear();
  return {};
}

Result<> write_whole_file(const std::string& path, std::string_view contents) {
  auto file = WholeFile::open(path);
  if (!file) return std::unexpected(file.error());
  return file->write(contents);
}

}  // namespace gpushare
