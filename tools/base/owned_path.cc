// SPDX-License-Identifier: Apache-2.0
#include "tools/base/owned_path.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

namespace gpushare {

std::string why_replaceable(std::span<const PathPart> parts, uid_t own) {
  constexpr const char* kAllowed =
      "every folder above the file, and the file, must belong to root and be writable by nobody "
      "else; allowed besides: root's folders with the sticky bit, such as /tmp";
  for (const PathPart& part : parts) {
    if (part.uid != 0 && part.uid != own)
      return fmt::format("{} belongs to user {}: {}", part.path, part.uid, kAllowed);
    const bool is_sticky_of_roots =
        S_ISDIR(part.mode) && part.uid == 0 && (part.mode & S_ISVTX) != 0;
    if ((part.mode & 022) != 0 && !is_sticky_of_roots)
      return fmt::format("{} is writable by others (mode {:04o}): {}", part.path,
                         static_cast<unsigned>(part.mode & 07777), kAllowed);
  }
  return "";
}

Result<> check_owned_path(const std::string& path) {
  constexpr const char* kStep = "see who may replace a file";
  std::error_code code;
  const std::filesystem::path whole = std::filesystem::canonical(path, code);
  if (code) return std::unexpected(Error{code, kStep, path});
  std::vector<PathPart> parts;
  std::filesystem::path upto;
  for (const std::filesystem::path& name : whole) {
    upto /= name;
    struct stat about{};
    if (::lstat(upto.c_str(), &about) != 0) return errno_error(kStep, upto);
    parts.push_back({upto, about.st_uid, about.st_mode});
  }
  const std::string why = why_replaceable(parts, ::geteuid());
  if (why.empty()) return {};
  return make_error(std::errc::operation_not_permitted, kStep, why);
}

}  // namespace gpushare
