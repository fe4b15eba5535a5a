// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel/rm/context.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace gpushare {

void die(const std::string& text) {
  std::fprintf(stderr, "rm_client: %s\n", text.c_str());
  std::exit(2);
}

void set_parameter(const char* name, uint64_t value) {
  std::ofstream(std::string("/sys/module/nvidia/parameters/") + name) << value;
}

void await_file(const char* path) {
  while (::access(path, F_OK) != 0) ::usleep(10'000);
}

bool is_compat = false;

int compat_ioctl(int fd, unsigned long request, void* argument, size_t bytes) {
  constexpr long kIoctl32 = 54;
  static void* const low =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  if (low == MAP_FAILED || bytes > 4096) die("no memory for a 32-bit argument");
  std::memcpy(low, argument, bytes);
  long ret = kIoctl32;
  asm volatile("int $0x80"
               : "+a"(ret)
               : "b"(fd), "c"(request), "d"(low)
               : "memory", "r8", "r9", "r10", "r11");
  std::memcpy(argument, low, bytes);
  if (static_cast<int>(ret) >= 0) return 0;
  errno = -static_cast<int>(ret);
  return -1;
}

void Context::open_root() {
  fd_ = ::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
  if (fd_ < 0) die("no driver");
  must(check_version(), "version");
  must(make<int>(0, client_, GS_CLASS_ROOT_CLIENT, nullptr), "client");
}

Answer Context::make_client(uint32_t& handle) {
  gs_nvos64 made{};
  made.h_class = GS_CLASS_ROOT_CLIENT;
  const Answer answer = call(fd_, GS_NV_ESC_RM_ALLOC, made);
  handle = made.h_new;
  return answer;
}

Answer Context::make_clients(uint64_t count) {
  Answer bad{};
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t handle = 0;
    Answer answer = make_client(handle);
    gs_nvos00 freed{handle, handle, handle, 0};
    if (answer.is_ok()) answer = call(fd_, GS_NV_ESC_RM_FREE, freed);
    if (!answer.is_ok()) bad = answer;
  }
  return bad;
}

gs_attach_ids Context::all_gpus() {
  gs_probed_ids probed{};
  must(control(client_, GS_CTRL_GPU_GET_PROBED_IDS, probed), "probed ids");
  gs_attach_ids attach{};
  std::memcpy(attach.ids, probed.ids, sizeof attach.ids);
  return attach;
}

void Context::open() {
  open_root();
  gpu_fd_ = ::open("/dev/nvidia0", O_RDWR | O_CLOEXEC);
  if (gpu_fd_ < 0) die("no GPU");
  gs_s32 control_file = fd_;
  must(call(gpu_fd_, GS_NV_ESC_REGISTER_FD, control_file), "register");
  gs_attach_ids attach = all_gpus();
  must(control(client_, GS_CTRL_GPU_ATTACH_IDS, attach), "attach");
  gs_gpu_id_info where{};
  where.gpu_id = attach.ids[0];
  must(control(client_, GS_CTRL_GPU_GET_ID_INFO_V2, where), "id info");

  gs_device_params device{};
  device.device_id = where.device_instance;
  device_ = next_++;
  must(make(client_, device_, GS_CLASS_DEVICE, &device), "device");
  gs_subdevice_params subdevice{};
  subdevice_ = next_++;
  must(make(device_, subdevice_, GS_CLASS_SUBDEVICE, &subdevice), "subdevice");
  gs_group_params group{};
  group.engine_type = GS_ENGINE_TYPE_GR0;
  group_ = next_++;
  must(make(device_, group_, GS_CLASS_CHANNEL_GROUP, &group), "group");
  for (int i = 0; i < kChannels; ++i) {
    channels_.push_back(next_++);
    must(make<int>(group_, channels_.back(), kHopperChannel, nullptr), "channel");
  }
  // Late attach tells a compute group from a copy group by the compute object.
  uint32_t compute = next_++;
  must(make<int>(channels_.front(), compute, kHopperCompute, nullptr), "compute");
  must(group_control(GS_CTRL_GROUP_SCHEDULE, {1, 0}), "schedule");
  gs_timeslice slice{kOwnSliceUs};
  must(control(group_, GS_CTRL_SET_TIMESLICE, slice), "slice");
}

Answer Context::busy(bool is_busy) {
  standin_busy params{is_busy};
  return control(channels_.front(), STANDIN_CTRL_SET_BUSY, params);
}

Answer Context::allocate(std::string_view how, uint64_t bytes) {
  const uint32_t handle = next_++;
  gs_memory_params params{};
  params.size = bytes;
  const auto remember = [&](const Answer& answer) {
    if (answer.is_ok()) memory_ = handle;
    return answer;
  };
  if (how == "alloc" || how == "alloc-short" || how == "alloc-gpu" || how == "xfer") {
    auto argument =
        allocation<gs_nvos64>(client_, device_, handle, GS_CLASS_MEMORY_LOCAL_USER, &params);
    if (how == "alloc-short") argument.params_size = 4;
    if (how != "xfer")
      return remember(call(how == "alloc-gpu" ? gpu_fd_ : fd_, GS_NV_ESC_RM_ALLOC, argument));
    gs_nv_xfer outer{GS_NV_ESC_RM_ALLOC, sizeof argument, reinterpret_cast<uintptr_t>(&argument)};
    const Answer answer = call(fd_, GS_NV_ESC_IOCTL_XFER_CMD, outer);
    return remember({argument.status, answer.error});
  }
  if (how == "alloc21") {
    auto argument =
        allocation<gs_nvos21>(client_, device_, handle, GS_CLASS_MEMORY_LOCAL_USER, &params);
    return remember(call(fd_, GS_NV_ESC_RM_ALLOC, argument));
  }
  if (how != "heap" && how != "range" && how != "tiled")
    die("no such way to allocate: " + std::string(how));
  struct {  // NVOS32_PARAMETERS is longer than the part that is declared.
    gs_nvos32_head head;
    uint8_t rest[184 - sizeof(gs_nvos32_head)];
  } argument{};
  argument.head.h_root = client_;
  argument.head.h_parent = device_;
  argument.head.h_memory = handle;
  if (how == "tiled") {  // Height and pitch stand where others have attributes and format.
    constexpr uint32_t kTiled = 6, kHeight = 1 << 25;  // as an attribute: "not video"
    argument.head.function = kTiled;
    argument.head.attr = kHeight;
    argument.head.format = static_cast<uint32_t>(bytes / kHeight);
  } else {
    argument.head.function = how == "heap" ? GS_HEAP_ALLOC_SIZE : GS_HEAP_ALLOC_SIZE_RANGE;
    (how == "heap" ? argument.head.size : argument.head.height_or_range_size) = bytes;
  }
  const Answer answer = call(fd_, GS_NV_ESC_RM_VID_HEAP_CONTROL, argument);
  return remember({argument.head.status, answer.error});
}

Answer Context::heap_size() {
  gs_nvos02_fd argument{};
  argument.h_root = client_;
  argument.h_parent = device_;
  argument.h_new = next_++;
  argument.h_class = GS_CLASS_MEMORY_LOCAL_USER;
  argument.fd = -1;
  return call(gpu_fd_, GS_NV_ESC_RM_ALLOC_MEMORY, argument);
}

Answer Context::dup() {
  gs_nvos55 argument{client_, device_, next_++, client_, memory_, 0, 0};
  return call(fd_, GS_NV_ESC_RM_DUP_OBJECT, argument);
}

Answer Context::free_memory() { return free_object(memory_); }

Answer Context::free_two() {
  must(free_memory(), "free");
  return free_object(memory_ - 1);
}

Answer Context::free_object(uint32_t handle) {
  gs_nvos00 argument{client_, device_, handle, 0};
  return call(fd_, GS_NV_ESC_RM_FREE, argument);
}

Answer Context::make_one(std::string_view kind, uint32_t& handle) {
  handle = next_;
  if (kind == "dup") return dup();
  if (kind != "channel" && kind != "object") return allocate("alloc", 4096);
  ++next_;
  return kind == "channel" ? make<int>(group_, handle, kHopperChannel, nullptr)
                           : make<int>(channels_.front(), handle, kHopperCompute, nullptr);
}

// The status says success beforehand, and the driver does not overwrite it.
Answer Context::free_memory_on_gpu() {
  gs_nvos00 argument{client_, device_, memory_, 0};
  return call(gpu_fd_, GS_NV_ESC_RM_FREE, argument);
}
Group group_of(int pid) {
  std::ifstream report("/proc/nvidia-standin");
  for (std::string line; std::getline(report, line);) {
    int owner = 0;
    Group group;
    if (std::sscanf(line.c_str(), "group gpu=%*u pid=%d client=%x handle=%x", &owner, &group.client,
                    &group.handle) == 3 &&
        owner == pid)
      return group;
  }
  die("process " + std::to_string(pid) + " has no group");
}

Answer Context::make_many(uint64_t count) {
  gs_attach_ids attach = all_gpus();
  const uint32_t first = client_, device = device_;
  Answer answer{};
  for (uint64_t i = 0; i < count && answer.is_ok(); ++i) {
    client_ = 0;
    must(make<int>(0, client_, GS_CLASS_ROOT_CLIENT, nullptr), "client");
    must(control(client_, GS_CTRL_GPU_ATTACH_IDS, attach), "attach");
    gs_device_params params{};
    device_ = next_++;
    must(make(client_, device_, GS_CLASS_DEVICE, &params), "device");
    answer = allocate("alloc", 64 << 10);
  }
  client_ = first, device_ = device;
  return answer;
}

Answer Context::free_client() {
  gs_nvos00 argument{client_, client_, client_, 0};
  return call(fd_, GS_NV_ESC_RM_FREE, argument);
}

Answer Context::group_control(uint32_t command, const std::vector<uint8_t>& params) {
  std::vector<uint8_t> bytes = params;
  return control(group_, command, bytes.data(), static_cast<uint32_t>(bytes.size()));
}

Answer Context::foreign_slice(int pid) {
  const Group group = group_of(pid);
  gs_timeslice slice{1};
  return control_of(group.client, group.handle, GS_CTRL_SET_TIMESLICE, &slice, sizeof slice);
}

Answer Context::foreign_alloc(int pid) {
  const uint32_t own = client_;
  client_ = group_of(pid).client;
  const Answer answer = allocate("alloc", 1 << 20);
  client_ = own;
  return answer;
}

Answer Context::any_control(uint32_t command) {
  uint8_t params[64]{};
  const uint32_t interface = command >> 16;
  uint32_t object = interface == GS_CLASS_DEVICE ? device_ : subdevice_;
  if (interface == GS_CLASS_CHANNEL_GROUP) object = group_;
  if (interface != GS_CLASS_SUBDEVICE && (interface & 0xFF) == GS_CHANNEL_CLASS_LOW_BYTE)
    object = channels_.empty() ? 0 : channels_.front();
  return control(object, command, params, sizeof params);
}

// The driver lets a program name any program's channels. The stand-in's report tells which there
// are.
Answer Context::disable(int pid, bool disable) {
  gs_disable_channels list{};
  list.disable = disable;
  std::ifstream report("/proc/nvidia-standin");
  for (std::string line; std::getline(report, line) && list.count < GS_DISABLE_CHANNELS_MAX;) {
    int owner = 0;
    unsigned client = 0, channel = 0;
    if (std::sscanf(line.c_str(), "channel gpu=%*u pid=%d client=%x group=%*x handle=%x", &owner,
                    &client, &channel) != 3 ||
        owner != pid)
      continue;
    list.clients[list.count] = client;
    list.channels[list.count++] = channel;
  }
  if (list.count == 0) die("process " + std::to_string(pid) + " has no channels");
  return control(subdevice_, GS_CTRL_DISABLE_CHANNELS, list);
}

Answer Context::check_version() {
  gs_nv_version version{};
  version.cmd = '2';
  return call(fd_, GS_NV_ESC_CHECK_VERSION_STR, version);
}

Answer Context::read_clock() {
  gs_gpu_time time{};
  return control(subdevice_, GS_CTRL_TIMER_GET_TIME, time);
}

}  // namespace gpushare
