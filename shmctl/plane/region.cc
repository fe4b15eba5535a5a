// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/region.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "shmctl/base/clock.h"

namespace gpushare {

namespace {

struct Unmap {
  void operator()(void* memory) const { ::munmap(memory, sizeof(Region)); }
};
using Memory = std::unique_ptr<void, Unmap>;

}  // namespace

struct ControlPlane::Mapping {
  Memory memory;
  bool is_writable;
};

namespace {

constexpr const char* kOpen = "open control plane";
constexpr const char* kMake = "make control plane";
constexpr const char* kSharedMemory = "/dev/shm";  // where Linux keeps POSIX shared memory
constexpr mode_t kMode = 0644;
constexpr int kMakeAttempts = 16;

// `protection`: of mmap(2).
Result<Memory> map_region(const char* step, const Fd& fd, int protection) {
  void* const memory = ::mmap(nullptr, sizeof(Region), protection, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return errno_error(step, fmt::format("map {} bytes", sizeof(Region)));
  return Memory(memory);
}

// Where a region's file is.
struct Place {
  std::string folder, file;
  std::string path() const { return folder + "/" + file; }
};

bool is_part_of_a_name(std::string_view part) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  return !part.empty() && part.size() <= 200 && part != "." && part != ".." &&
         part.find_first_not_of(kAllowed) == std::string_view::npos;
}

Result<Place> place_of(const char* step, const std::string& name) {
  bool is_name = name.starts_with('/') && name.size() < PATH_MAX;
  for (std::size_t at = 0; is_name && at < name.size();) {
    const std::size_t end = std::min(name.find('/', at + 1), name.size());
    is_name = is_part_of_a_name(std::string_view(name).substr(at + 1, end - at - 1));
    at = end;
  }
  if (!is_name)
    return make_error(
        std::errc::invalid_argument, step,
        fmt::format("'{}' is no name of a region: expected an absolute path whose parts are of "
                    "letters, digits, '_', '.', '-', at most 200 of them (such as {})",
                    name, kDefaultRegionName));
  const std::size_t last = name.rfind('/');
  return Place{last == 0 ? kSharedMemory : name.substr(0, last), name.substr(last + 1)};
}

std::unexpected<Error> refuse(const std::string& name, std::string_view found,
                              std::string_view remedy,
                              std::errc code = std::errc::invalid_argument) {
  return make_error(code, kOpen, fmt::format("{} {}: {}", name, found, remedy));
}

// The folder of a region, which the file is then reached through: it cannot be exchanged any more.
// `does_make`: if it is not there.
Result<Fd> open_folder(const char* step, const Place& place, bool does_make) {
  if (does_make && ::mkdir(place.folder.c_str(), 0755) == 0 &&
      ::chmod(place.folder.c_str(), 0755) != 0)  // whatever the umask
    return errno_error(step, place.folder);
  Fd folder(::open(place.folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.is_open()) {
    struct stat link{};
    if (errno == ENOTDIR && ::lstat(place.folder.c_str(), &link) == 0 && S_ISLNK(link.st_mode))
      return refuse(place.folder, "is a symbolic link", "name the folder itself");
    return errno_error(step, place.folder);
  }
  struct stat status{};
  if (::fstat(folder.get(), &status) != 0) return errno_error(step, place.folder);
  if (status.st_uid != 0 && status.st_uid != ::geteuid())
    return refuse(
        place.folder,
        fmt::format("belongs to uid {}, expected root or uid {}", status.st_uid, ::geteuid()),
        "who owns the folder could put another region there");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (status.st_mode & S_ISVTX) == 0)
    return refuse(place.folder, fmt::format("has mode {:04o}", status.st_mode & 07777),
                  "others could put another region there; take their right to write away");
  return folder;
}

// What a header says, beside what changes.
struct HeaderValues {
  uint64_t magic;
  uint32_t version, header_bytes;
  uint64_t region_bytes;
  uint32_t max_gpus, max_tenants, max_processes, max_ledger;
  uint64_t created_ns, publication;
  uint32_t ledger_format, ledger_offset;
};
static_assert(sizeof(HeaderValues) == sizeof(RegionHeader) &&
              offsetof(HeaderValues, ledger_offset) == offsetof(RegionHeader, ledger_offset));

// nullopt: it cannot be read, as errno says, or the file is shorter (0).
std::optional<HeaderValues> read_header(const Fd& fd) {
  HeaderValues header{};
  errno = 0;
  const ssize_t got = ::pread(fd.get(), &header, sizeof header, 0);
  return got == sizeof header ? std::optional(header) : std::nullopt;
}

// `fd` is whatever was found under the name. Nothing is mapped before this check has passed.
Result<> check_file(const std::string& name, const std::string& path, const Fd& fd) {
  struct stat file;
  if (::fstat(fd.get(), &file) != 0) return errno_error(kOpen, name);
  const std::string remove_it = fmt::format("stop gpushared if it runs, then remove {}", path);

  if (!S_ISREG(file.st_mode)) return refuse(name, "is not a regular file", remove_it);
  if (file.st_uid != 0 && file.st_uid != ::geteuid())
    return refuse(
        name, fmt::format("belongs to uid {}, expected root or uid {}", file.st_uid, ::geteuid()),
        "somebody else made it; check who, then remove " + path);
  if ((file.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return refuse(name,
                  fmt::format("has mode {:04o}, expected {:04o}", file.st_mode & 07777, kMode),
                  "others may have changed it; " + remove_it);

  const auto first = read_header(fd);
  if (!first && errno != 0) return errno_error(kOpen, name);
  if (!first)
    return refuse(name,
                  fmt::format("is truncated: {} bytes, a header alone has {}", file.st_size,
                              sizeof(RegionHeader)),
                  remove_it, ControlPlane::kUnreadable);
  const HeaderValues& header = *first;
  if (header.magic != kMagic)
    return refuse(name,
                  fmt::format("is not a control plane: magic {:#018x}, expected {:#018x}",
                              header.magic, kMagic),
                  remove_it, ControlPlane::kUnreadable);
  if (header.version != kLayoutVersion)
    return refuse(
        name,
        fmt::format("has layout version {}, this build speaks {}", header.version, kLayoutVersion),
        "stop the other gpushared and run its own `gpushared --recover`, then remove " + path,
        ControlPlane::kUnreadable);
  if (header.header_bytes != sizeof(RegionHeader) || header.region_bytes != sizeof(Region) ||
      header.max_gpus != kMaxGpus || header.max_tenants != kMaxTenants ||
      header.max_processes != kMaxProcesses || header.max_ledger != kMaxLedger)
    return refuse(
        name,
        fmt::format("has another shape: {} bytes with {} GPUs, {} tenants, {} processes, {} ledger "
                    "entries, expected {} with {}, {}, {}, {}",
                    header.region_bytes, header.max_gpus, header.max_tenants, header.max_processes,
                    header.max_ledger, sizeof(Region), kMaxGpus, kMaxTenants, kMaxProcesses,
                    kMaxLedger),
        "it was made by another build; " + remove_it, ControlPlane::kUnreadable);
  if (static_cast<uint64_t>(file.st_size) != sizeof(Region))
    return refuse(
        name,
        fmt::format("has {} bytes, its header says {}: it was {}", file.st_size,
                    header.region_bytes,
                    file.st_size < static_cast<off_t>(sizeof(Region)) ? "truncated" : "extended"),
        remove_it, ControlPlane::kUnreadable);
  return {};
}

// Also for a region that a version made which did not write it; whoever does it writes the same.
void write_ledger_place(RegionHeader& header) {
  if (header.ledger_format == kLedgerFormat) return;
  header.ledger_offset = offsetof(Region, ledger);
  header.ledger_format = kLedgerFormat;
}

void write_header(Region& region) {
  RegionHeader& header = region.header;
  header.magic = kMagic;
  header.version = kLayoutVersion;
  header.header_bytes = sizeof(RegionHeader);
  header.region_bytes = sizeof(Region);
  header.max_gpus = kMaxGpus;
  header.max_tenants = kMaxTenants;
  header.max_processes = kMaxProcesses;
  header.max_ledger = kMaxLedger;
  header.created_ns = stored_ns(MonotonicClock().now());
  write_ledger_place(header);
}

// Puts an empty region under `name`; it is whole from the first instant at which the name exists.
// Error file_exists when another process was faster.
Result<> make_region(const Fd& folder, const Place& place) {
  Fd fd(::openat(folder.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, kMode));
  if (!fd.is_open()) return errno_error(kMake, fmt::format("new file in {}", place.folder));
  if (::fchmod(fd.get(), kMode) != 0)  // whatever the umask
    return errno_error(kMake, "set its mode");
  // Allocates the pages now: a full tmpfs is an error here, and not a SIGBUS at a later store.
  if (::fallocate(fd.get(), 0, 0, sizeof(Region)) != 0)
    return errno_error(kMake, fmt::format("{} bytes in {}", sizeof(Region), place.folder));
  auto memory = map_region(kMake, fd, PROT_READ | PROT_WRITE);
  if (!memory) return std::unexpected(memory.error());
  write_header(*static_cast<Region*>(memory->get()));

  const std::string nameless = fmt::format("/proc/self/fd/{}", fd.get());
  if (::linkat(AT_FDCWD, nameless.c_str(), folder.get(), place.file.c_str(), AT_SYMLINK_FOLLOW) !=
      0)
    return errno_error(kMake, place.path());
  return {};
}

struct FoundFile {
  std::string path;
  Fd fd;
};

// Whatever is under the name.
Result<FoundFile> open_file(const std::string& name, bool is_writable) {
  const auto place = place_of(kOpen, name);
  if (!place) return std::unexpected(place.error());
  const auto folder = open_folder(kOpen, *place, /*does_make=*/false);
  const bool is_absent = !folder && folder.error().code == std::errc::no_such_file_or_directory;
  if (!folder && !is_absent) return std::unexpected(folder.error());
  // O_NONBLOCK keeps a FIFO under the name from blocking this call; it is refused later.
  Fd fd(is_absent
            ? -1
            : ::openat(folder->get(), place->file.c_str(),
                       (is_writable ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (fd.is_open()) return FoundFile{place->path(), std::move(fd)};
  const int why = is_absent ? ENOENT : errno;
  errno = why;
  if (why == ELOOP)
    return refuse(name, "is a symbolic link", "check who made it, then remove " + place->path());
  if (why == ENOENT) return errno_error(kOpen, name + " (gpushared makes it when it starts)");
  if (why == EACCES && is_writable)
    return errno_error(kOpen, name + " for writing (only its owner may, normally root)");
  return errno_error(kOpen, name);
}

}  // namespace

ControlPlane::ControlPlane(std::string name, std::unique_ptr<Mapping> mapping)
    : name_(std::move(name)), mapping_(std::move(mapping)) {}
ControlPlane::ControlPlane(ControlPlane&&) noexcept = default;
ControlPlane& ControlPlane::operator=(ControlPlane&&) noexcept = default;
ControlPlane::~ControlPlane() = default;

Result<ControlPlane> ControlPlane::open(const std::string& name, Access access) {
  const bool is_writable = access == Access::kReadWrite;
  const auto found = open_file(name, is_writable);
  if (!found) return std::unexpected(found.error());
  if (auto checked = check_file(name, found->path, found->fd); !checked)
    return std::unexpected(checked.error());
  auto memory = map_region(kOpen, found->fd, is_writable ? PROT_READ | PROT_WRITE : PROT_READ);
  if (!memory) return std::unexpected(memory.error());
  return ControlPlane(name, std::make_unique<Mapping>(std::move(*memory), is_writable));
}

Result<ControlPlane> ControlPlane::open_read_only(const std::string& name) {
  return open(name, Access::kReadOnly);
}

Result<ControlPlane> ControlPlane::open_existing(const std::string& name) {
  return open(name, Access::kReadWrite);
}

Result<ControlPlane> ControlPlane::create(const std::string& name) {
  const auto place = place_of(kMake, name);
  if (!place) return std::unexpected(place.error());
  for (int attempt = 0; attempt < kMakeAttempts; ++attempt) {
    auto found = open(name, Access::kReadWrite);
    if (found) write_ledger_place(found->region().header);
    if (found || found.error().code != std::errc::no_such_file_or_directory) return found;
    const auto folder = open_folder(kMake, *place, /*does_make=*/true);
    if (!folder) return std::unexpected(folder.error());
    const auto made = make_region(*folder, *place);
    if (!made && made.error().code != std::errc::file_exists) return std::unexpected(made.error());
  }
  return make_error(std::errc::resource_unavailable_try_again, kMake,
                    name + " is being made and removed by others all the time");
}

Result<std::string> ControlPlane::replace(const std::string& name, const std::string& with) {
  constexpr const char* kReplace = "replace a control plane";
  const auto place = place_of(kReplace, name), other = place_of(kReplace, with);
  if (!place) return std::unexpected(place.error());
  if (!other) return std::unexpected(other.error());
  if (other->folder != place->folder)
    return make_error(std::errc::invalid_argument, kReplace, with + " is in another folder");
  const auto found = open(name, Access::kReadWrite);
  if (found) return make_error(std::errc::invalid_argument, kReplace, name + " can be read");
  if (found.error().code != kUnreadable) return std::unexpected(found.error());
  const auto folder = open_folder(kReplace, *place, /*does_make=*/false);
  if (!folder) return std::unexpected(folder.error());
  const int at = folder->get();
  const std::string aside = place->file + ".unread";
  if (::unlinkat(at, aside.c_str(), 0) != 0 && errno != ENOENT)
    return errno_error(kReplace, place->folder + "/" + aside);
  if (::linkat(at, place->file.c_str(), at, aside.c_str(), 0) != 0)
    return errno_error(kReplace, name);
  if (::renameat(at, other->file.c_str(), at, place->file.c_str()) != 0)
    return errno_error(kReplace, with);
  return place->folder + "/" + aside;
}

Result<> ControlPlane::copy_ledger(const std::string& name, Region& into) {
  auto found = open_file(name, /*is_writable=*/false);
  if (!found) return std::unexpected(found.error());
  const auto none = [&](std::string_view why) {
    return make_error(kUnreadable, "read the ledger of another layout",
                      fmt::format("{} {}", name, why));
  };
  const auto checked = check_file(name, found->path, found->fd);
  if (checked) return make_error(std::errc::invalid_argument, kOpen, name + " can be read");
  if (checked.error().code != kUnreadable) return checked;
  const auto header = read_header(found->fd);
  if (!header || header->magic != kMagic) return none("has no header");
  if (header->ledger_format != kLedgerFormat) return none("has a ledger of another format");
  Slot<LedgerRecord> slot;
  std::vector<LedgerRecord> taken;
  for (uint64_t index = 0; index < header->max_ledger; ++index) {
    const auto at = static_cast<off_t>(header->ledger_offset + index * sizeof slot);
    if (::pread(found->fd.get(), static_cast<void*>(&slot), sizeof slot, at) != sizeof slot)
      return none("does not have all of its ledger");
    const auto record = read_record(slot);
    if (!record || record->pid == 0) continue;
    if (taken.size() == kMaxLedger) return none("lists more than this version can");
    taken.push_back(*record);
  }
  for (std::size_t i = 0; i < taken.size(); ++i) write_record(into.ledger[i], taken[i]);
  return {};
}

Result<> ControlPlane::remove(const std::string& name) {
  constexpr const char* kRemove = "remove control plane";
  const auto place = place_of(kRemove, name);
  if (!place) return std::unexpected(place.error());
  if (::unlink(place->path().c_str()) != 0 && errno != ENOENT) return errno_error(kRemove, name);
  return {};
}

Result<Fd> ControlPlane::open_lock_file(const std::string& name) {
  constexpr const char* kLock = "lock the control plane";
  const auto place = place_of(kLock, name);
  if (!place) return std::unexpected(place.error());
  const auto folder = open_folder(kLock, *place, /*does_make=*/true);
  if (!folder) return std::unexpected(folder.error());
  Fd fd(::openat(folder->get(), (place->file + ".lock").c_str(),
                 O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.is_open()) return errno_error(kLock, place->path() + ".lock");
  return fd;
}

Region& ControlPlane::region() {
  assert(mapping_->is_writable);
  return *static_cast<Region*>(mapping_->memory.get());
}

const Region& ControlPlane::region() const {
  return *static_cast<const Region*>(mapping_->memory.get());
}

}  // namespace gpushare
