// SPDX-License-Identifier: Apache-2.0
// rm_client: a program that does at the driver's ioctl boundary what a CUDA program does there, and
// then what it is told; run in the guest, statically linked.
//
//   rm_client WORD...      carries the words out in order, and prints one line for each that makes
//                          a driver call: the word and the driver's status ("alloc=64 0x51"), or
//                          "errno=N" when the ioctl itself failed
//
//   open         one context: client, device, subdevice, one compute group of 8 channels, put on
//   the
//                runlist, slice set once (what libcuda does at start); every call must succeed
//   busy idle    the first channel has work, or none
//   alloc=MIB alloc21=MIB memory=MIB heap=MIB range=MIB xfer=MIB
//                video memory, by each of the calls that make it
//   dup          a second name for the newest memory           free     frees the newest memory
//   end          frees the client
//   slice=US schedule unschedule preempt interleave=N realtime
//                scheduling controls on its own group
//   foreign-slice=PID  sets the slice of another process's group, through its own file
//   control=CMD  any control, with zeros for parameters, on its group, a channel or its subdevice
//   freeze=PID thaw=PID                                        another process's channels
//   race=US      asks for its slice while another thread turns the question into setting it to US:
//                prints the slice that it has then
//   race-size=MIB  allocates 1 MiB, 200 times, while another thread turns the size into MIB
//   churn=N      N times memory made and freed, each answer passed over
//   cost=KIND    time of one call in ns, the least of many: version, control, alloc (made and
//                freed), other (not to the driver)
//   echo=TEXT    prints TEXT                                   sleep=MS
//   wait         until it is ended by a signal
#include <fcntl.h>
#include <sys/ioctl.h>
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

template <class T>
Answer call(int fd, unsigned nr, T& argument) {
  const unsigned long request = _IOC(_IOC_READ | _IOC_WRITE, GS_NV_IOCTL_TYPE, nr, sizeof argument);
  if (::ioctl(fd, request, &argument) != 0) return {0, errno};
  if constexpr (requires { argument.status; }) return {argument.status, 0};
  return {};
}

class Context {
 public:
  void open();
  Answer busy(bool is_busy);
  Answer allocate(std::string_view how, uint64_t bytes);
  Answer dup();
  Answer free_memory();
  Answer free_client();
  Answer group_control(uint32_t command, const std::vector<uint8_t>& params);
  Answer foreign_slice(int pid);
  Answer any_control(uint32_t command);
  Answer disable(int pid, bool disable);
  Answer check_version();
  Answer read_clock();
  uint64_t race(uint64_t us);
  void race_size(uint64_t bytes);

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

  int fd_ = -1;
  uint32_t client_ = 0, device_ = 0, subdevice_ = 0, group_ = 0, memory_ = 0;
  uint32_t next_ = kFirstHandle;
  std::vector<uint32_t> channels_;
};

void Context::open() {
  fd_ = ::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
  if (fd_ < 0 || ::open("/dev/nvidia0", O_RDWR | O_CLOEXEC) < 0) die("no driver");
  must(check_version(), "version");
  must(make<int>(0, client_, GS_CLASS_ROOT_CLIENT, nullptr), "client");
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
  constexpr uint32_t kHopperCompute = 0xCBC0;
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
  if (how == "alloc" || how == "xfer") {
    gs_nvos64 argument{};
    argument.h_root = client_;
    argument.h_parent = device_;
    argument.h_new = handle;
    argument.h_class = GS_CLASS_MEMORY_LOCAL_USER;
    argument.p_params = reinterpret_cast<uintptr_t>(&params);
    argument.params_size = sizeof params;
    if (how == "alloc") return remember(call(fd_, GS_NV_ESC_RM_ALLOC, argument));
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
  if (how == "memory") {
    gs_nvos02_fd argument{};
    argument.h_root = client_;
    argument.h_parent = device_;
    argument.h_new = handle;
    argument.h_class = GS_CLASS_MEMORY_LOCAL_USER;
    argument.limit = bytes - 1;
    argument.fd = -1;
    return remember(call(fd_, GS_NV_ESC_RM_ALLOC_MEMORY, argument));
  }
  if (how != "heap" && how != "range") die("no such way to allocate: " + std::string(how));
  struct {  // NVOS32_PARAMETERS is longer than the part that is declared
    gs_nvos32_head head;
    uint8_t rest[184 - sizeof(gs_nvos32_head)];
  } argument{};
  argument.head.h_root = client_;
  argument.head.h_parent = device_;
  argument.head.h_memory = handle;
  argument.head.function = how == "heap" ? GS_HEAP_ALLOC_SIZE : GS_HEAP_ALLOC_SIZE_RANGE;
  (how == "heap" ? argument.head.size : argument.head.height_or_range_size) = bytes;
  const Answer answer = call(fd_, GS_NV_ESC_RM_VID_HEAP_CONTROL, argument);
  return remember({argument.head.status, answer.error});
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

Answer Context::free_memory() {
  gs_nvos00 argument{client_, device_, memory_, 0};
  return call(fd_, GS_NV_ESC_RM_FREE, argument);
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
  std::ifstream report("/proc/nvidia-standin");
  for (std::string line; std::getline(report, line);) {
    int owner = 0;
    unsigned client = 0, group = 0;
    if (std::sscanf(line.c_str(), "group gpu=%*u pid=%d client=%x handle=%x", &owner, &client,
                    &group) != 3 ||
        owner != pid)
      continue;
    gs_timeslice slice{1};
    return control_of(client, group, GS_CTRL_SET_TIMESLICE, &slice, sizeof slice);
  }
  die("process " + std::to_string(pid) + " has no group");
}

Answer Context::any_control(uint32_t command) {
  uint8_t params[64]{};
  const uint32_t interface = command >> 16;
  uint32_t object = interface == GS_CLASS_DEVICE ? device_ : subdevice_;
  if (interface == GS_CLASS_CHANNEL_GROUP) object = group_;
  if (interface != GS_CLASS_SUBDEVICE && (interface & 0xFF) == GS_CHANNEL_CLASS_LOW_BYTE)
    object = channels_.front();
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

void Context::race_size(uint64_t bytes) {
  gs_memory_params params{};
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    const std::atomic_ref<gs_u64> size(params.size);
    // Each value stands for a time of its own, so that no rhythm of the machine hides one.
    for (uint32_t n = 1; !is_over; n = n * 1664525 + 1013904223) {
      size = (n & 0x80000000) != 0 ? bytes : 1 << 20;
      for (uint32_t spin = n >> 20; spin > 0; --spin) asm volatile("");
    }
  });
  for (int i = 0; i < 200; ++i) {
    ::usleep(1000);  // lets the other write, on few processors too
    gs_nvos64 argument{};
    argument.h_root = client_;
    argument.h_parent = device_;
    argument.h_new = next_++;
    argument.h_class = GS_CLASS_MEMORY_LOCAL_USER;
    argument.p_params = reinterpret_cast<uintptr_t>(&params);
    argument.params_size = sizeof params;
    if (call(fd_, GS_NV_ESC_RM_ALLOC, argument).is_ok()) memory_ = argument.h_new;
  }
  is_over = true;
  other.join();
}

// With instructions counted (-icount shift=0) a nanosecond is one. A batch that a timer's tick fell
// into is longer, and the least of many has none.
double cost_ns(Context& context, std::string_view kind) {
  constexpr int kBatches = 200, kCalls = 20;
  const auto one = [&] {
    if (kind == "version") return context.check_version().is_ok();
    if (kind == "control") return context.read_clock().is_ok();
    if (kind == "alloc")
      return context.allocate("alloc", 1 << 20).is_ok() && context.free_memory().is_ok();
    static const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    int unused = 0;
    return ::ioctl(other, FIONREAD, &unused) != 0;  // ENOTTY
  };
  double least = 1e18;
  for (int batch = 0; batch < kBatches; ++batch) {
    timespec begin{}, end{};
    ::clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < kCalls; ++i)
      if (!one()) die("a call failed while it was measured");
    ::clock_gettime(CLOCK_MONOTONIC, &end);
    const double ns = 1e9 * static_cast<double>(end.tv_sec - begin.tv_sec) +
                      static_cast<double>(end.tv_nsec - begin.tv_nsec);
    least = std::min(least, ns / kCalls);
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
  const std::string text(equals == word.npos ? "" : word.substr(equals + 1));
  const uint64_t number = std::strtoull(text.c_str(), nullptr, 0);

  if (verb == "open") return context.open(), report(word, {});
  if (verb == "busy" || verb == "idle") return report(word, context.busy(verb == "busy"));
  if (verb == "dup") return report(word, context.dup());
  if (verb == "free") return report(word, context.free_memory());
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
  if (verb == "control") return report(word, context.any_control(static_cast<uint32_t>(number)));
  if (verb == "race")
    return (void)std::printf("race %llu\n", static_cast<unsigned long long>(context.race(number)));
  if (verb == "race-size") return context.race_size(number << 20);
  if (verb == "churn") {
    for (uint64_t i = 0; i < number; ++i)
      if (context.allocate("alloc", 1 << 20).is_ok()) context.free_memory();
    return;
  }
  if (verb == "cost")
    return (void)std::printf("cost=%s %.1f\n", text.c_str(), cost_ns(context, text));
  if (verb == "echo") return (void)std::printf("%s\n", text.c_str());
  if (verb == "sleep") return (void)::usleep(static_cast<useconds_t>(number * 1000));
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
