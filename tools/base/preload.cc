// SPDX-License-Identifier: Apache-2.0
#include "tools/base/preload.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "shmctl/base/fd.h"
#include "shmctl/program/child.h"
#include "tools/base/owned_path.h"

namespace gpushare {
namespace {

namespace fs = std::filesystem;

constexpr Nanos kToTry = std::chrono::seconds(20);
constexpr std::string_view kSeparators = " \t\r\n:";

bool is_ours(std::string_view entry, std::string_view path) {
  if (!path.empty()) return entry == path;
  return entry == kShimLibrary || entry.ends_with(fmt::format("/{}", kShimLibrary));
}

// Calls `use(begin, end)` for each entry of one line.
template <class Use>
void for_each_entry(std::string_view line, const Use& use) {
  line = line.substr(0, line.find('#'));
  for (size_t at = 0; (at = line.find_first_not_of(kSeparators, at)) != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kSeparators, at), line.size());
    use(at, end);
    at = end;
  }
}

template <class Use>
void for_each_line(std::string_view text, const Use& use) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const size_t length = end == std::string_view::npos ? text.size() : end + 1;
    use(text.substr(0, length));
    text.remove_prefix(length);
  }
}

}  // namespace

Result<std::string> find_shim_library() {
  std::error_code code;
  const fs::path here = own_folder();
  for (const char* folder : {"../lib/gpushare", "../lib"}) {
    const fs::path path = fs::weakly_canonical(here / folder / kShimLibrary, code);
    if (fs::is_regular_file(path, code)) return path.string();
  }
  return make_error(std::errc::no_such_file_or_directory, "find libgpushare.so",
                    "looked in ../lib/gpushare and ../lib of " + here.string());
}

bool has_preload_entry(std::string_view text, std::string_view path) {
  bool has = false;
  for_each_line(text, [&](std::string_view line) {
    for_each_entry(line, [&](size_t begin, size_t end) {
      has = has || is_ours(line.substr(begin, end - begin), path);
    });
  });
  return has;
}

std::string with_preload_entry(std::string_view text, std::string_view path) {
  std::string result(text);
  if (has_preload_entry(text, path)) return result;
  if (!result.empty() && !result.ends_with('\n')) result += '\n';
  return result.append(path) + '\n';
}

std::string without_preload_entry(std::string_view text) {
  std::string result;
  for_each_line(text, [&](std::string_view line) {
    std::string kept;
    size_t done = 0;
    bool has_ours = false;
    for_each_entry(line, [&](size_t begin, size_t end) {
      if (!is_ours(line.substr(begin, end - begin), "")) return;
      kept += line.substr(done, begin - done);
      done = end;
      has_ours = true;
    });
    if (!has_ours) {
      result += line;
      return;
    }
    kept += line.substr(done);
    if (kept.find_first_not_of(kSeparators) != std::string::npos) result += kept;
  });
  return result;
}

std::string preload_path(const std::string& root) { return root + "/etc/ld.so.preload"; }

Result<std::string> read_preload(const std::string& root) {
  const std::string path = preload_path(root);
  std::error_code code;
  if (!fs::exists(path, code)) return std::string();
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return make_error(std::errc::io_error, "read", path);
  return text.str();
}

Result<> write_preload(const std::string& root, const std::string& text) {
  constexpr const char* kStep = "write";
  // Where it is a link, the file that it leads to.
  std::error_code code;
  const std::string path = fs::weakly_canonical(preload_path(root), code).string();
  const Fd folder(::open(fs::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) return errno_error(kStep, path);
  if (text.find_first_not_of(kSeparators) == std::string::npos) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return errno_error("remove", path);
  } else {
    const std::string written = fmt::format("{}.{}.tmp", path, ::getpid());
    const Fd file(::open(written.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file.is_open()) return errno_error(kStep, path);
    const bool is_whole =
        ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
        ::fchmod(file.get(), 0644) == 0 && ::fsync(file.get()) == 0 &&
        ::rename(written.c_str(), path.c_str()) == 0;
    if (!is_whole) {
      auto failed = errno_error(kStep, path);
      ::unlink(written.c_str());
      return failed;
    }
  }
  if (::fsync(folder.get()) != 0) return errno_error(kStep, path);
  return {};
}

Result<> try_preload(const std::string& library) {
  constexpr const char* kStep = "try the library";
  if (auto owned = check_owned_path(library); !owned) return owned;
  if (library.find_first_of(kSeparators) != std::string::npos || library.contains('#'))
    return make_error(std::errc::invalid_argument, kStep,
                      library + ": the loader's list cannot hold a path with blanks or colons");
  auto child = Child::start({.command = {"/bin/cat", "/proc/self/maps"},
                             .environment = {"LD_PRELOAD=" + library},
                             .is_environment_whole = true});
  if (!child) return std::unexpected(child.error());
  const auto status = child->finish(kToTry);
  if (!status) return std::unexpected(status.error());
  const std::string complaint = child->errors().substr(0, child->errors().find('\n'));
  if (*status == 0 && child->output().contains(library) && !complaint.starts_with("ERROR"))
    return {};
  return make_error(std::errc::executable_format_error, kStep,
                    fmt::format("{}: a program does not start with it: {}", library, complaint));
}

}  // namespace gpushare
