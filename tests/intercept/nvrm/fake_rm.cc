// SPDX-License-Identifier: Apache-2.0
#include "tests/intercept/nvrm/fake_rm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <fmt/core.h>

#include <algorithm>

namespace gpushare::nvrm {
// --- programs ------------------------------------------------------------------------------------

int FakeRm::open_control(ProcessId process) {
  Program& program = programs_[process.pid];
  program.start_ticks = process.start_ticks;
  program.files[next_fd_] = make_file(GS_NV_CTL_MINOR);
  return next_fd_++;
}

uint32_t FakeRm::make_client(ProcessId process, int fd) {
  const uint32_t client = next_client_++;
  clients_[client].file = *file_of(programs_.at(process.pid).files.at(fd).get());
  make_object(client, client, 0, GS_CLASS_ROOT_CLIENT);
  return client;
}

void FakeRm::make_object(uint32_t client, uint32_t handle, uint32_t parent, uint32_t class_id) {
  auto& objects = clients_.at(client).objects;
  const auto above = objects.find(parent);
  objects[handle] = {parent, class_id, above == objects.end() ? std::nullopt : above->second.gpu};
}

std::tuple<int, uint32_t, FakeRm::Context> FakeRm::make_program(ProcessId process,
                                                                uint32_t first_handle,
                                                                uint32_t channels) {
  const int fd = open_control(process);
  const uint32_t client = make_client(process, fd);
  return {fd, client, make_context(client, 0, first_handle, channels)};
}

FakeRm::Context FakeRm::make_context(uint32_t client, size_t gpu, uint32_t first_handle,
                                     uint32_t channels) {
  constexpr uint32_t kHopperChannel = 0xC86F, kHopperCompute = 0xCBC0, kHopperCopy = 0xC8B5;
  Context made{client, first_handle, first_handle + 1, {}, {}};
  uint32_t next = first_handle + 2;
  make_object(client, made.device, client, GS_CLASS_DEVICE);
  clients_.at(client).objects[made.device].gpu = gpu;
  make_object(client, made.subdevice, made.device, GS_CLASS_SUBDEVICE);
  for (int group = 0; group < 4; ++group) {
    made.groups.push_back(next++);
    make_object(client, made.groups.back(), made.device, GS_CLASS_CHANNEL_GROUP);
    slices_us[{client, made.groups.back()}] = group == 0 ? 2048 : 1024;
    for (uint32_t i = 0; i < channels; ++i) {
      made.channels.push_back(next++);
      make_object(client, made.channels.back(), made.groups.back(), kHopperChannel);
      make_object(client, next++, made.channels.back(), group == 0 ? kHopperCompute : kHopperCopy);
    }
  }
  return made;
}

void FakeRm::end(pid_t pid) {
  programs_.at(pid).files.clear();
  ended.insert(pid);
}

void FakeRm::kill(pid_t pid) {
  for (const auto& [number, fd] : programs_.at(pid).files)
    std::erase_if(clients_, [file = *file_of(fd.get())](const auto& entry) {
      return entry.second.file == file;
    });
  programs_.erase(pid);
}

void FakeRm::close_in(pid_t pid, int fd) { programs_.at(pid).files.erase(fd); }

void FakeRm::share(ProcessId from, int fd, ProcessId to, int as) {
  programs_[to.pid].start_ticks = to.start_ticks;
  const Fd& shared = programs_.at(from.pid).files.at(fd);
  programs_[to.pid].files[as] = Fd(::fcntl(shared.get(), F_DUPFD_CLOEXEC, 0));
}

void FakeRm::hand_over(uint32_t client, ProcessId to, int fd) {
  clients_.at(client).file = *file_of(programs_.at(to.pid).files.at(fd).get());
}

int FakeRm::copies() const {
  return static_cast<int>(std::ranges::count_if(
      fetched_, [&](const auto& copy) { return file_of(copy.first) == copy.second; }));
}

void FakeRm::forget_faults() {
  always_.clear();
  nth_.clear();
}

size_t FakeRm::count(Call call) const {
  return static_cast<size_t>(std::ranges::count(calls, call));
}

int FakeRm::frozen(uint32_t client, uint32_t channel) const {
  const auto it = frozen_.find({client, channel});
  return it == frozen_.end() ? 0 : it->second;
}

uint64_t FakeRm::gpu_now() const {
  const Time now = std::chrono::steady_clock::now();
  return static_cast<uint64_t>(now.time_since_epoch().count() + gpu_clock_ahead_ns);
}

void FakeRm::log_switch(size_t gpu, uint8_t tag, uint32_t pid, uint32_t context, uint64_t gpu_ns) {
  Log& log = logs_[gpu];
  gs_switch_record record{};
  record.tag = tag;
  record.seqno = log.seqno++;
  record.pid = pid;
  record.context_id = context;
  record.timestamp = gpu_ns;
  log.pending.push_back(record);
}

// --- files ---------------------------------------------------------------------------------------

Fd FakeRm::make_file(unsigned minor) {
  Fd fd(::memfd_create("fake-rm", MFD_CLOEXEC));
  struct stat info{};
  ::fstat(fd.get(), &info);
  files_[info.st_ino] = minor;
  return fd;
}

std::optional<FakeRm::FileId> FakeRm::file_of(int fd) const {
  struct stat info{};
  if (::fstat(fd, &info) != 0 || !files_.contains(info.st_ino)) return std::nullopt;
  return info.st_ino;
}

std::optional<unsigned> FakeRm::minor_of(const std::string& pci) {
  if (!tells_minors) return std::nullopt;
  for (const GpuModel& gpu : gpus_)
    if (fmt::format("0000:{:02x}:00.0", gpu.pci_bus) == pci) return gpu.minor;
  return std::nullopt;
}

// To a process that has its device file open.
bool FakeRm::is_accessible(const GpuModel& gpu) const {
  return std::ranges::any_of(device_files_, [&](const auto& file) {
    return file.second == gpu.minor && file_of(file.first.first) == file.first.second;
  });
}

Result<Fd> FakeRm::open(unsigned minor) {
  if (const auto it = closed_files.find(minor); it != closed_files.end())
    return make_error(it->second, "open the driver", "minor " + std::to_string(minor));
  const bool is_there =
      minor == GS_NV_CTL_MINOR || std::ranges::find(gpus_, minor, &GpuModel::minor) != gpus_.end();
  if (!is_there)
    return make_error(std::errc::no_such_device, "open the driver",
                      "minor " + std::to_string(minor));
  if (minor != GS_NV_CTL_MINOR) opened.push_back(minor);
  Fd file = make_file(minor);
  if (minor != GS_NV_CTL_MINOR) device_files_[{file.get(), *file_of(file.get())}] = minor;
  return file;
}

Result<Fd> FakeRm::fetch(ProcessId process, int fd) {
  if (fetching) return make_error(*fetching, "take descriptor of process");
  const auto program = programs_.find(process.pid);
  if (program == programs_.end() ||
      (process.start_ticks != 0 && program->second.start_ticks != process.start_ticks))
    return make_error(std::errc::no_such_process, "open process", std::to_string(process.pid));
  const auto file = program->second.files.find(fd);
  if (file == program->second.files.end())
    return make_error(std::errc::bad_file_descriptor, "take descriptor of process",
                      std::to_string(process.pid));
  Fd copy(::fcntl(file->second.get(), F_DUPFD_CLOEXEC, 0));
  fetched_.emplace_back(copy.get(), *file_of(copy.get()));
  return copy;
}

Result<Driver::Look> FakeRm::look_for_control_fd(pid_t pid, long place, size_t) {
  if (place == 0) return Look{.has_found = false, .next = 7};
  return Look{.has_found = place == 7 && !control_fds(pid)->empty(), .next = std::nullopt};
}

Result<std::vector<int>> FakeRm::control_fds(pid_t pid, size_t) {
  std::vector<int> numbers;
  if (const auto program = programs_.find(pid); program != programs_.end())
    for (const auto& [number, fd] : program->second.files) numbers.push_back(number);
  if (after_listing) after_listing();
  return numbers;
}

Result<std::vector<pid_t>> FakeRm::processes() {
  std::vector<pid_t> pids;
  for (const auto& [pid, program] : programs_) pids.push_back(pid);
  return pids;
}

Result<const void*> FakeRm::map(int fd, size_t bytes) {
  struct stat info{};
  if (!file_of(fd) || ::fstat(fd, &info) != 0 || static_cast<size_t>(info.st_size) != bytes)
    return make_error(std::errc::invalid_argument, "map driver memory", "nothing prepared");
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return errno_error("map driver memory");
  ++mappings;
  return address;
}

void FakeRm::unmap(const void* address, size_t bytes) {
  --mappings;
  ::munmap(const_cast<void*>(address), bytes);
}

// --- calls ---------------------------------------------------------------------------------------

int FakeRm::ioctl(int fd, unsigned nr, void* argument, size_t bytes) {
  const auto file = file_of(fd);
  if (!file) return EBADF;
  uint32_t selector = 0;
  uint32_t* status = nullptr;
  std::function<uint32_t()> answer;
  if (nr == GS_NV_ESC_CHECK_VERSION_STR && bytes == sizeof(gs_nv_version)) {
    auto& call = *static_cast<gs_nv_version*>(argument);
    static uint32_t unused;  // this call has no status
    status = &unused;
    answer = [&] {
      call.reply = 1;
      version.copy(call.text, sizeof(call.text) - 1);
      return GS_NV_OK;
    };
  } else if (nr == GS_NV_ESC_RM_ALLOC && bytes == sizeof(gs_nvos64)) {
    auto& call = *static_cast<gs_nvos64*>(argument);
    selector = call.h_class;
    status = &call.status;
    answer = [&] { return alloc(*file, call); };
  } else if (nr == GS_NV_ESC_RM_CONTROL && bytes == sizeof(gs_nvos54)) {
    auto& call = *static_cast<gs_nvos54*>(argument);
    selector = call.cmd;
    status = &call.status;
    answer = [&] { return control(*file, call); };
  } else if (nr == GS_NV_ESC_RM_MAP_MEMORY && bytes == sizeof(gs_nvos33_fd)) {
    auto& call = *static_cast<gs_nvos33_fd*>(argument);
    status = &call.status;
    answer = [&] { return map_memory(*file, call); };
  } else {
    return EINVAL;
  }

  const Call call{nr, selector};
  const size_t index = calls.size();
  calls.push_back(call);
  const Failure* failure = nullptr;
  if (const auto it = always_.find(call); it != always_.end()) failure = &it->second;
  if (const auto it = nth_.find(index); it != nth_.end()) failure = &it->second;
  if (failure != nullptr && failure->error != 0) return failure->error;
  *status = failure != nullptr ? failure->status : answer();
  return 0;
}

}  // namespace gpushare::nvrm
