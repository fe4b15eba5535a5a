// SPDX-License-Identifier: Apache-2.0
// rm_client: a program that does at the driver's ioctl boundary what a CUDA program does there, and
// then what it is told; run in the guest, statically linked.
//
//   rm_client WORD...      carries the words out in order, and prints one line for each that makes
//                          a driver call: the word and the driver's status ("alloc=64 0x51"), or
//                          "errno=N" when the ioctl itself failed
//
//   open         one context: client, device, subdevice, one compute group of 8 channels, on the
//                runlist, slice set once (what libcuda does at start); every call must succeed
//   root         the client alone: what a driver without a GPU can give
//   clients=N    N more made and freed; one answer is printed, the last bad one if there was any
//   busy idle    the first channel has work, or none
//   alloc=MIB alloc21=MIB heap=MIB range=MIB tiled=MIB xfer=MIB
//                video memory, by each of the calls that make it
//   dup          a second name for the newest memory           free     frees the newest memory
//   end          frees the client
//   slice=US schedule unschedule preempt interleave=N realtime
//                scheduling controls on its own group
//   foreign-slice=PID  sets the slice of another process's group, through its own file
//   foreign-alloc=PID  asks for 1 MiB of video memory below another process's client
//   control=CMD  any control, with zeros for parameters, on its group, a channel or its subdevice
//   freeze=PID thaw=PID                                        another process's channels
//   heap-size    the call that looks like video memory's and only tells how much there is
//   alloc-short=MIB  alloc, with a size of the parameters that ends before the memory's size
//   alloc-gpu=MIB free-gpu  on the GPU's file, where the driver refuses them without an answer
//   many=N       N clients beside it, kept, each with a device and 64 KiB of video memory
//   compat       the calls from here on are made as 32-bit programs make them
//   race=US      asks for its slice while another thread turns the question into setting it to US:
//                prints the slice that it has then
//   race-slice=US  makes 60 groups and sets each one's slice to 2048 us, while another thread turns
//                that into US: prints the longest that one has then
//   race-size=MIB race-heap=MIB
//                allocates 1 MiB, 100 times, while another thread turns the size into MIB: where
//                the argument points to the size, and where it holds it
//   churn=N      N times memory made and freed, each answer passed over
//   cost=KIND    time of one call in ns, the least of many: version, control, alloc and free (video
//                memory, twenty made and then freed), kept (made and never freed), dup, channel,
//                object (of a channel), preempt and refused (controls), other (not to the driver)
//   echo=TEXT    prints TEXT                                   sleep=MS
//   until=FILE   waits until there is one
//   wait         until it is ended by a signal
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/kernel/nvidia/standin_abi.h"

namespace {

constexpr uint32_t kFirstHandle = 0x5C000001;
constexpr uint32_t kHopperChannel = 0xC86F;
constexpr uint32_t kHopperCompute = 0xCBC0;
constexpr int kChannels = 8;
constexpr uint32_t kOwnSliceUs = 2048;

// What the driver said: its status, or the errno of the ioctl.
struct Answer {
  uint32_t status = 0;
  int error = 0;
  bool is_ok() const { return status == 0 && error == 0; }
};

[[noreturn]] void die(const std::string& text) {
  std::fprintf(stderr, "rm_client: %s\n", text.c_str());
  std::exit(2);
}

// ioctl() as a 32-bit program makes it: by the system call of those, with an argument that their
// pointers can reach. What the argument itself points to may be anywhere.
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

template <class T>
Answer call(int fd, unsigned nr, T& argument) {
  const unsigned long request = _IOC(_IOC_READ | _IOC_WRITE, GS_NV_IOCTL_TYPE, nr, sizeof argument);
  const int ret = is_compat ? compat_ioctl(fd, request, &argument, sizeof argument)
                            : ::ioctl(fd, request, &argument);
  if (ret != 0) return {0, errno};
  if constexpr (requires { argument.status; }) return {argument.status, 0};
  return {};
}

class Context {
 public:
  void open_root();
  void open();
  Answer make_client(uint32_t& handle);
  Answer make_clients(uint64_t count);
  Answer busy(bool is_busy);
  Answer allocate(std::string_view how, uint64_t bytes);
  Answer heap_size();
  Answer dup();
  Answer free_memory();
  Answer free_object(uint32_t handle);
  Answer make_one(std::string_view kind, uint32_t& handle);
  Answer preempt() { return group_control(GS_CTRL_GROUP_PREEMPT, {1, 0, 0, 0, 0, 0, 0, 0}); }
  Answer free_memory_on_gpu();
  Answer free_client();
  Answer make_many(uint64_t count);
  Answer group_control(uint32_t command, const std::vector<uint8_t>& params);
  Answer foreign_slice(int pid);
  Answer foreign_alloc(int pid);
  Answer any_control(uint32_t command);
  Answer disable(int pid, bool disable);
  Answer check_version();
  Answer read_clock();
  uint64_t race(uint64_t us);
  uint64_t race_slice(uint64_t us);
  void race_size(uint64_t bytes, bool is_inline);

 private:
  template <class T>
  Answer control(uint32_t object, uint32_t command, T& params) {
    return control(object, command, &params, sizeof params);
  }
  Answer control(uint32_t object, uint32_t command, void* params, uint32_t bytes) {
    return control_of(client_, object, command, params, bytes);
  }
  Answer control_of(uint32_t client, uint32_t object, uint32_t command, void* params,
                    uint32_t bytes) {
    gs_nvos54 argument{};
    argument.h_client = client;
    argument.h_object = object;
    argument.cmd = command;
    argument.p_params = reinterpret_cast<uintptr_t>(params);
    argument.params_size = bytes;
    return call(fd_, GS_NV_ESC_RM_CONTROL, argument);
  }
  template <class T>
  Answer make(uint32_t parent, uint32_t& handle, uint32_t class_id, T* params) {
    gs_nvos64 argument{};
    argument.h_root = client_;
    argument.h_parent = parent;
    argument.h_new = handle;
    argument.h_class = class_id;
    argument.p_params = reinterpret_cast<uintptr_t>(params);
    argument.params_size = params == nullptr ? 0 : sizeof *params;
    const Answer answer = call(fd_, GS_NV_ESC_RM_ALLOC, argument);
    handle = argument.h_new;
    return answer;
  }
  static void must(const Answer& answer, const char* step) {
    if (!answer.is_ok())
      die(std::string(step) + ": status " + std::to_string(answer.status) + ", errno " +
          std::to_string(answer.error));
  }

  int fd_ = -1, gpu_fd_ = -1;
  uint32_t client_ = 0, device_ = 0, subdevice_ = 0, group_ = 0, memory_ = 0;
  uint32_t next_ = kFirstHandle;
  std::vector<uint32_t> channels_;
};

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

void Context::open() {
  open_root();
  gpu_fd_ = ::open("/dev/nvidia0", O_RDWR | O_CLOEXEC);
  if (gpu_fd_ < 0) die("no GPU");
  gs_s32 control_file = fd_;
  must(call(gpu_fd_, GS_NV_ESC_REGISTER_FD, control_file), "register");
  gs_probed_ids probed{};
  must(control(client_, GS_CTRL_GPU_GET_PROBED_IDS, probed), "probed ids");
  gs_attach_ids attach{};
  std::memcpy(attach.ids, probed.ids, sizeof attach.ids);
  must(control(client_, GS_CTRL_GPU_ATTACH_IDS, attach), "attach");
  gs_gpu_id_info where{};
  where.gpu_id = probed.ids[0];
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
  // The compute object by which late attach tells a compute group from a copy group.
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
    gs_nvos64 argument{};
    argument.h_root = client_;
    argument.h_parent = device_;
    argument.h_new = handle;
    argument.h_class = GS_CLASS_MEMORY_LOCAL_USER;
    argument.p_params = reinterpret_cast<uintptr_t>(&params);
    argument.params_size = how == "alloc-short" ? 4 : sizeof params;
    if (how != "xfer")
      return remember(call(how == "alloc-gpu" ? gpu_fd_ : fd_, GS_NV_ESC_RM_ALLOC, argument));
    gs_nv_xfer outer{GS_NV_ESC_RM_ALLOC, sizeof argument, reinterpret_cast<uintptr_t>(&argument)};
    const Answer answer = call(fd_, GS_NV_ESC_IOCTL_XFER_CMD, outer);
    return remember({argument.status, answer.error});
  }
  if (how == "alloc21") {
    gs_nvos21 argument{};
    argument.h_root = client_;
    argument.h_parent = device_;
    argument.h_new = handle;
    argument.h_class = GS_CLASS_MEMORY_LOCAL_USER;
    argument.p_params = reinterpret_cast<uintptr_t>(&params);
    argument.params_size = sizeof params;
    return remember(call(fd_, GS_NV_ESC_RM_ALLOC, argument));
  }
  if (how != "heap" && how != "range" && how != "tiled")
    die("no such way to allocate: " + std::string(how));
  struct {  // NVOS32_PARAMETERS is longer than the part that is declared
    gs_nvos32_head head;
    uint8_t rest[184 - sizeof(gs_nvos32_head)];
  } argument{};
  argument.head.h_root = client_;
  argument.head.h_parent = device_;
  argument.head.h_memory = handle;
  if (how == "tiled") {  // by height and pitch, which stand where others have attributes and format
    constexpr uint32_t kTiled = 6, kHeight = 1 << 25;  // as an attribute it would be "not video"
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
  gs_nvos55 argument{};
  argument.h_client = client_;
  argument.h_parent = device_;
  argument.h_object = next_++;
  argument.h_client_src = client_;
  argument.h_object_src = memory_;
  return call(fd_, GS_NV_ESC_RM_DUP_OBJECT, argument);
}

Answer Context::free_memory() { return free_object(memory_); }

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

// With the status of success, which the driver does not overwrite.
Answer Context::free_memory_on_gpu() {
  gs_nvos00 argument{client_, device_, memory_, 0};
  return call(gpu_fd_, GS_NV_ESC_RM_FREE, argument);
}

struct Group {
  unsigned client = 0, handle = 0;
};

// The first one of a process.
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
  gs_probed_ids probed{};
  must(control(client_, GS_CTRL_GPU_GET_PROBED_IDS, probed), "probed ids");
  gs_attach_ids attach{};
  std::memcpy(attach.ids, probed.ids, sizeof attach.ids);
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

// The driver lets anyone name anyone's channels; they are known here from the stand-in's report.
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

uint64_t Context::race(uint64_t us) {
  constexpr int kTries = 2000;
  gs_timeslice params{};
  gs_nvos54 argument{};
  argument.h_client = client_;
  argument.h_object = group_;
  argument.p_params = reinterpret_cast<uintptr_t>(&params);
  argument.params_size = sizeof params;
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    const std::atomic_ref<gs_u32> command(argument.cmd);
    const std::atomic_ref<gs_u64> slice(params.us);
    while (!is_over) {
      command = GS_CTRL_GET_TIMESLICE;
      slice = us;
      command = GS_CTRL_SET_TIMESLICE;
    }
  });
  for (int i = 0; i < kTries; ++i) call(fd_, GS_NV_ESC_RM_CONTROL, argument);
  is_over = true;
  other.join();
  gs_timeslice now{};
  must(control(group_, GS_CTRL_GET_TIMESLICE, now), "slice");
  return now.us;
}

// Runs `body` while another thread writes one of two values, now this, now that. Each stands for a
// time of its own, so that no rhythm of the machine hides one.
template <class Body>
void while_changing(gs_u64& value, uint64_t one, uint64_t other, Body body) {
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    const std::atomic_ref<gs_u64> cell(value);
    for (uint32_t n = 1; !is_over; n = n * 1664525 + 1013904223) {
      cell = (n & 0x80000000) != 0 ? other : one;
      for (uint32_t spin = n >> 20; spin > 0; --spin) asm volatile("");
    }
  });
  body();
  is_over = true;
  writer.join();
}

void Context::race_size(uint64_t bytes, bool is_inline) {
  struct {
    gs_nvos32_head head;
    uint8_t rest[184 - sizeof(gs_nvos32_head)];
  } heap{};
  gs_memory_params params{};
  while_changing(is_inline ? heap.head.size : params.size, 1 << 20, bytes, [&] {
    for (int i = 0; i < 100; ++i) {
      ::usleep(1000);  // lets the other write, on few processors too
      if (is_inline) {
        heap.head.h_root = client_;
        heap.head.h_parent = device_;
        heap.head.h_memory = next_++;
        heap.head.function = GS_HEAP_ALLOC_SIZE;
        call(fd_, GS_NV_ESC_RM_VID_HEAP_CONTROL, heap);
        continue;
      }
      gs_nvos64 argument{};
      argument.h_root = client_;
      argument.h_parent = device_;
      argument.h_new = next_++;
      argument.h_class = GS_CLASS_MEMORY_LOCAL_USER;
      argument.p_params = reinterpret_cast<uintptr_t>(&params);
      argument.params_size = sizeof params;
      call(fd_, GS_NV_ESC_RM_ALLOC, argument);
    }
  });
}

uint64_t Context::race_slice(uint64_t us) {
  uint64_t longest = 0;
  gs_timeslice slice{};
  for (int i = 0; i < 60; ++i) {
    gs_group_params params{};
    params.engine_type = GS_ENGINE_TYPE_GR0;
    uint32_t group = next_++;
    must(make(device_, group, GS_CLASS_CHANNEL_GROUP, &params), "group");
    while_changing(slice.us, kOwnSliceUs, us, [&] {
      ::usleep(1000);
      control(group, GS_CTRL_SET_TIMESLICE, slice);
    });
    gs_timeslice now{};
    must(control(group, GS_CTRL_GET_TIMESLICE, now), "slice");
    longest = std::max<uint64_t>(longest, now.us);
  }
  return longest;
}

// With instructions counted (-icount shift=0) a nanosecond is one. A batch that a timer's tick fell
// into is longer, and the least of many has none.
constexpr int kCalls = 20;

template <class Call>
double batch_ns(Call one) {
  timespec begin{}, end{};
  ::clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < kCalls; ++i)
    if (!one(i)) die("a call failed while it was measured");
  ::clock_gettime(CLOCK_MONOTONIC, &end);
  return (1e9 * static_cast<double>(end.tv_sec - begin.tv_sec) +
          static_cast<double>(end.tv_nsec - begin.tv_nsec)) /
         kCalls;
}

// Twenty made, and freed again unless they are to be kept. A client more each time, so that the twenty are
// not always the same records of the kernel's allocator and some batch has them all on one page of its:
// another page costs 16 instructions a call, and with or without the module it was chance who had it.
double making_ns(Context& context, std::string_view kind) {
  uint32_t handles[kCalls] = {}, another = 0;
  if (!context.make_client(another).is_ok()) die("no client more between two batches");
  const double making = batch_ns([&](int i) { return context.make_one(kind, handles[i]).is_ok(); });
  if (kind == "kept") return making;
  const double freeing = batch_ns([&](int i) { return context.free_object(handles[i]).is_ok(); });
  return kind == "free" ? freeing : making;
}

double cost_ns(Context& context, std::string_view kind) {
  constexpr int kBatches = 30;
  static const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  int unused = 0;
  if (kind == "dup" && !context.allocate("alloc", 4096).is_ok()) die("no memory to duplicate");
  double least = 1e18;
  for (int batch = 0; batch < kBatches; ++batch) {
    double ns = 0;
    if (kind == "version")
      ns = batch_ns([&](int) { return context.check_version().is_ok(); });
    else if (kind == "control")
      ns = batch_ns([&](int) { return context.read_clock().is_ok(); });
    else if (kind == "preempt")
      ns = batch_ns([&](int) { return context.preempt().is_ok(); });
    else if (kind == "refused")  // by the driver, or before it
      ns = batch_ns([&](int) { return !context.any_control(GS_CTRL_SET_INTERLEAVE).is_ok(); });
    else if (kind == "other")
      ns = batch_ns([&](int) { return ::ioctl(other, FIONREAD, &unused) != 0; });  // ENOTTY
    else
      ns = making_ns(context, kind);
    least = std::min(least, ns);
  }
  return least;
}

std::vector<uint8_t> bytes_of(uint64_t value, size_t size) {
  std::vector<uint8_t> bytes(size);
  std::memcpy(bytes.data(), &value, size);
  return bytes;
}

void report(std::string_view word, const Answer& answer) {
  if (answer.error != 0)
    std::printf("%.*s errno=%d\n", static_cast<int>(word.size()), word.data(), answer.error);
  else
    std::printf("%.*s 0x%x\n", static_cast<int>(word.size()), word.data(), answer.status);
}

void carry_out(Context& context, std::string_view word) {
  const size_t equals = word.find('=');
  const std::string_view verb = word.substr(0, equals);
  const std::string text(equals == std::string_view::npos ? "" : word.substr(equals + 1));
  const uint64_t number = std::strtoull(text.c_str(), nullptr, 0);

  if (verb == "open") return context.open(), report(word, {});
  if (verb == "root") return context.open_root(), report(word, {});
  if (verb == "clients") return report(word, context.make_clients(number));
  if (verb == "busy" || verb == "idle") return report(word, context.busy(verb == "busy"));
  if (verb == "dup") return report(word, context.dup());
  if (verb == "heap-size") return report(word, context.heap_size());
  if (verb == "free") return report(word, context.free_memory());
  if (verb == "free-gpu") return report(word, context.free_memory_on_gpu());
  if (verb == "many") return report(word, context.make_many(number));
  if (verb == "compat") return (void)(is_compat = true);
  if (verb == "end") return report(word, context.free_client());
  if (verb == "freeze" || verb == "thaw")
    return report(word, context.disable(static_cast<int>(number), verb == "freeze"));
  if (verb == "slice")
    return report(word, context.group_control(GS_CTRL_SET_TIMESLICE, bytes_of(number, 8)));
  if (verb == "schedule" || verb == "unschedule")
    return report(word, context.group_control(GS_CTRL_GROUP_SCHEDULE, {verb == "schedule", 0}));
  if (verb == "preempt")
    return report(word, context.group_control(GS_CTRL_GROUP_PREEMPT, bytes_of(1, 8)));
  if (verb == "interleave")
    return report(word, context.group_control(GS_CTRL_SET_INTERLEAVE, bytes_of(number, 4)));
  if (verb == "realtime")
    return report(word, context.group_control(GS_CTRL_MAKE_REALTIME, bytes_of(1, 1)));
  if (verb == "foreign-slice") return report(word, context.foreign_slice(static_cast<int>(number)));
  if (verb == "foreign-alloc") return report(word, context.foreign_alloc(static_cast<int>(number)));
  if (verb == "control") return report(word, context.any_control(static_cast<uint32_t>(number)));
  if (verb == "race")
    return (void)std::printf("race %llu\n", static_cast<unsigned long long>(context.race(number)));
  if (verb == "race-slice")
    return (void)std::printf("race-slice %llu\n",
                             static_cast<unsigned long long>(context.race_slice(number)));
  if (verb == "race-size" || verb == "race-heap")
    return context.race_size(number << 20, verb == "race-heap");
  if (verb == "churn") {
    for (uint64_t i = 0; i < number; ++i)
      if (context.allocate("alloc", 1 << 20).is_ok()) context.free_memory();
    return;
  }
  if (verb == "cost")
    return (void)std::printf("cost=%s %.1f\n", text.c_str(), cost_ns(context, text));
  if (verb == "echo") return (void)std::printf("%s\n", text.c_str());
  if (verb == "sleep") return (void)::usleep(static_cast<useconds_t>(number * 1000));
  if (verb == "until") {
    while (::access(text.c_str(), F_OK) != 0) ::usleep(10'000);
    return;
  }
  if (verb == "wait")
    for (;;) ::pause();
  report(word, context.allocate(verb, number << 20));
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Context context;
  for (int i = 1; i < argc; ++i) carry_out(context, argv[i]);
  return 0;
}
