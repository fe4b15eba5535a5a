// SPDX-License-Identifier: Apache-2.0
// kmod_fuzz SECONDS [SEED]: eight threads make ioctls of the driver that are half grammar and half
// noise, on handles that collide. Meanwhile tenants come and go, processes move between them and
// die in mid-call, and /dev/gpushare is opened and closed. It runs in the guest of tests/kernel, as
// root. Much of what it looks for shows in the kernel's log. Its own verdict is that the module
// counts the memory that the driver has given whenever the programs stand still, and none when they
// are gone. It ends with a line "calls N".
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kmod/uapi/gpushare.h"
#include "tests/kernel/nvidia/standin_abi.h"
#include "tests/kernel/rm/device.h"

namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937;

constexpr int kThreads = 8;
// Root may make this call, and NVIDIA's 535 reads its argument without checking its length: with no
// bytes it takes the kernel down (RmIoctl, seen in 535.261.03; 580 checks the length).
constexpr uint32_t kLocklessDiagnostic = 0x5F;
constexpr uint32_t kDevice = 0x5C000000;  // of every client that has one
const std::string kTree = GPUSHARE_SYSFS_PATH "/";
std::atomic<uint64_t>* calls;  // of all processes

uint32_t one_of(Random& random, std::initializer_list<uint32_t> values) {
  return values.begin()[random() % values.size()];
}

// One of few handles, so that threads meet, and now and then any number.
uint32_t handle(Random& random) {
  const uint32_t kind = random() % 16;
  if (kind == 0) return static_cast<uint32_t>(random());
  return kind < 6 ? 0xC1D00000u + random() % 8 : kDevice + random() % 16;
}

uint32_t class_of(Random& random) {
  return one_of(random, {GS_CLASS_ROOT_CLIENT, GS_CLASS_DEVICE, GS_CLASS_SUBDEVICE,
                         GS_CLASS_CHANNEL_GROUP, 0xC86F, GS_CLASS_MEMORY_LOCAL_USER,
                         GS_CLASS_MEMORY_SYSTEM, 0x42, static_cast<uint32_t>(random() & 0xFFFF)});
}

// One thread's view of the driver. It uses clients that it was given more often than invented ones.
class Caller {
 public:
  explicit Caller(uint32_t seed) : random_(seed), gpu_(::open("/dev/nvidia0", O_RDWR | O_CLOEXEC)) {
    reopen();
  }
  ~Caller() {
    for (const int buffer : buffers_) ::close(buffer);
    ::close(fd_);
    ::close(gpu_);
  }

  void step() {
    calls->fetch_add(1, std::memory_order_relaxed);
    switch (random_() % 14) {
      case 0:
        return random_() % 64 == 0 ? reopen() : make_client();
      case 1:
      case 2:
      case 3:
      case 4:
        return allocate();
      case 5:
      case 6:
        return free_one();
      case 7:
      case 8:
        return control();
      case 9:
        return duplicate();
      case 10:
        return heap();
      case 11:
        return memory();
      case 12:
        return dma_buf();
      default:
        return noise();
    }
  }

 private:
  void reopen() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = ::open(random_() % 8 ? "/dev/nvidiactl" : "/dev/nvidia0", O_RDWR | O_CLOEXEC);
    clients_.clear();
  }
  uint32_t client() {
    if (clients_.empty() || random_() % 8 == 0) return handle(random_);
    return clients_[random_() % clients_.size()];
  }
  template <class T>
  void call(uint32_t nr, T& argument) {
    if (random_() % 5 == 0) {
      gs_nv_xfer xfer{nr, sizeof argument, reinterpret_cast<uintptr_t>(&argument)};
      if (random_() % 32 == 0) xfer.ptr = random_();
      ::ioctl(fd_, _IOC(3, 'F', GS_NV_ESC_IOCTL_XFER_CMD, sizeof xfer), &xfer);
      return;
    }
    ::ioctl(fd_, _IOC(3, random_() & 0xFF, nr, sizeof argument), &argument);
  }
  void make_client() {
    gs_nvos64 argument{};
    argument.h_class = GS_CLASS_ROOT_CLIENT;
    call(GS_NV_ESC_RM_ALLOC, argument);
    if (argument.status != 0 || argument.h_new == 0 || clients_.size() == 64) return;
    clients_.push_back(argument.h_new);
    gs_probed_ids probed{};
    control(argument.h_new, GS_CTRL_GPU_GET_PROBED_IDS, probed);
    gs_attach_ids attach{};
    std::memcpy(attach.ids, probed.ids, sizeof attach.ids);
    control(argument.h_new, GS_CTRL_GPU_ATTACH_IDS, attach);
    gs_device_params params{};
    gs_nvos64 device = device_below(argument.h_new, kDevice, params);
    call(GS_NV_ESC_RM_ALLOC, device);
  }
  template <class T>
  void control(uint32_t client, uint32_t cmd, T& params) {
    gs_nvos54 argument{};
    argument.h_client = argument.h_object = client;
    argument.cmd = cmd;
    argument.p_params = reinterpret_cast<uintptr_t>(&params);
    argument.params_size = sizeof params;
    call(GS_NV_ESC_RM_CONTROL, argument);
  }
  void allocate() {
    gs_memory_params params{};
    params.size = random_() % 2 ? random_() % (8 << 20) : random_() * uint64_t{random_()};
    params.attr = one_of(random_, {0, 0, 1u << 23, 2u << 23, 3u << 23, 1u << 25, 3u << 25});
    params.owner = random_() % 8 ? 0 : random_();  // of a device: its instance
    gs_nvos64 argument{};
    argument.h_root = client();
    argument.h_parent = one_of(random_, {kDevice, kDevice, handle(random_), argument.h_root});
    argument.h_new = random_() % 4 ? handle(random_) : 0;
    argument.h_class = class_of(random_);
    argument.p_params = random_() % 16 ? reinterpret_cast<uintptr_t>(&params) : random_();
    argument.params_size = random_() % 8 ? sizeof params : random_() % 256;
    argument.flags = random_() % 16 == 0;
    if (random_() % 3) return call(GS_NV_ESC_RM_ALLOC, argument);
    gs_nvos21 old{argument.h_root,
                  argument.h_parent,
                  argument.h_new,
                  argument.h_class,
                  argument.p_params,
                  argument.params_size,
                  0};
    call(GS_NV_ESC_RM_ALLOC, old);
  }
  void free_one() {
    gs_nvos00 argument{client(), handle(random_), handle(random_), 0};
    if (random_() % 32 == 0) argument.h_object = argument.h_root;
    call(GS_NV_ESC_RM_FREE, argument);
  }
  void control() {
    std::array<uint64_t, 96> params{};
    params[0] = random_() % 4096;
    gs_nvos54 argument{};
    argument.h_client = client();
    argument.h_object = handle(random_);
    argument.cmd =
        one_of(random_, {GS_CTRL_GROUP_SCHEDULE, GS_CTRL_SET_TIMESLICE, GS_CTRL_GET_TIMESLICE,
                         GS_CTRL_GROUP_PREEMPT, GS_CTRL_DISABLE_CHANNELS, GS_CTRL_CHANNEL_STOP,
                         GS_CTRL_CHANNEL_SCHEDULE, static_cast<uint32_t>(random_())});
    argument.p_params = random_() % 16 ? reinterpret_cast<uintptr_t>(params.data()) : random_();
    argument.params_size = random_() % 4 ? sizeof(uint64_t) : random_() % sizeof params;
    call(GS_NV_ESC_RM_CONTROL, argument);
  }
  void duplicate() {
    gs_nvos55 argument{client(), handle(random_), random_() % 2 ? handle(random_) : 0,
                       client(), handle(random_), 0,
                       0};
    call(GS_NV_ESC_RM_DUP_OBJECT, argument);
  }
  void heap() {
    struct {  // NVOS32_PARAMETERS is longer than the part that is declared
      gs_nvos32_head head;
      std::array<uint8_t, 184 - sizeof(gs_nvos32_head)> rest;
    } argument{};
    argument.head.h_root = client();
    argument.head.h_parent = one_of(random_, {kDevice, handle(random_)});
    argument.head.function = one_of(random_, {GS_HEAP_ALLOC_SIZE, GS_HEAP_ALLOC_SIZE_RANGE,
                                              GS_HEAP_FREE, static_cast<uint32_t>(random_() % 32)});
    argument.head.h_memory = handle(random_);
    argument.head.flags = random_() % 8 ? 0 : GS_HEAP_FLAGS_VIRTUAL;
    argument.head.size = random_() % (8 << 20);
    argument.head.height_or_range_size = random_() % (8 << 20);
    argument.head.attr = one_of(random_, {0, 0, 3u << 23, 1u << 25});
    call(GS_NV_ESC_RM_VID_HEAP_CONTROL, argument);
  }
  void memory() {  // on a GPU's file, which speaks for a control file
    gs_s32 control_file = fd_;
    ::ioctl(gpu_, _IOC(3, 'F', GS_NV_ESC_REGISTER_FD, sizeof control_file), &control_file);
    gs_nvos02_fd argument{};
    argument.h_root = client();
    argument.h_parent = one_of(random_, {kDevice, handle(random_)});
    argument.h_new = handle(random_);
    argument.h_class = class_of(random_);
    argument.limit = random_() % (8 << 20);
    ::ioctl(gpu_, _IOC(3, 'F', GS_NV_ESC_RM_ALLOC_MEMORY, sizeof argument), &argument);
  }
  void dma_buf() {  // on a GPU's file, too; some are added to one that there is
    const size_t place = random_() % buffers_.size();
    dma_buf_export argument{};
    argument.fd = random_() % 4 ? -1 : buffers_[place];
    argument.client = client();
    argument.total = 1 + random_() % 4;
    argument.count = 1 + random_() % argument.total;
    argument.index = random_() % 4;
    argument.bytes = 4096;
    for (uint32_t i = 0; i < argument.count; ++i) argument.handles[i] = handle(random_);
    const bool is_added = argument.fd >= 0;
    ::ioctl(gpu_, _IOC(3, 'F', DMA_BUF_ESC_EXPORT, sizeof argument), &argument);
    if (is_added || argument.fd < 0) return;
    ::close(buffers_[place]);
    buffers_[place] = argument.fd;
  }
  void noise() {
    std::array<uint32_t, 64> argument;
    for (uint32_t& word : argument) word = random_() % 2 ? handle(random_) : random_();
    const uint32_t nr = one_of(random_, {0x27, 0x28, 0x29, 0x2A, 0x2B, 0x34, 0x4A, 211,
                                         static_cast<uint32_t>(random_() & 0xFF)});
    if (nr == kLocklessDiagnostic) return;
    const uint32_t size = one_of(
        random_, {0, 16, 20, 28, 32, 48, 56, 96, 184, 256, static_cast<uint32_t>(random_() % 257)});
    const uintptr_t at = random_() % 16 ? reinterpret_cast<uintptr_t>(argument.data())
                                        : one_of(random_, {0, 8, 0xFFFFFFF0});
    ::ioctl(fd_, _IOC(3, 'F', nr, size), at);
  }

  Random random_;
  int gpu_;  // open, or the driver gives nobody a device
  int fd_ = -1;
  std::vector<uint32_t> clients_;
  std::array<int, 4> buffers_{-1, -1, -1, -1};
};

void write_file(const std::string& path, const std::string& value) {
  const int fd = ::open(path.c_str(), O_WRONLY);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t written = ::write(fd, value.data(), value.size());
  ::close(fd);
}

void change_tenants(Random& random, const std::vector<pid_t>& pids) {
  const std::string name = "fuzz" + std::to_string(random() % 4);
  const std::string tenant = kTree + "tenants/" + name + "/";
  switch (random() % 8) {
    case 0:
      return write_file(kTree + "create", name);
    case 1:
      return write_file(kTree + "remove", name);
    case 2:
      return write_file(tenant + "memory_max", random() % 2 ? "16M" : "max");
    case 3:
      return write_file(tenant + "match_uid", random() % 2 ? "0" : "");
    case 4: {
      std::ifstream procs(tenant + "procs");
      std::string line;
      while (std::getline(procs, line)) continue;
      return;
    }
    default:
      return write_file(tenant + "procs", std::to_string(pids[random() % pids.size()]));
  }
}

void use_the_door(Random& random) {
  const int fd = ::open(GPUSHARE_DEVICE_PATH, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  gpushare_query query{};
  ::ioctl(fd, GPUSHARE_IOC_QUERY, &query);
  void* consumer = ::mmap(nullptr, query.consumer_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                          static_cast<off_t>(query.consumer_offset));
  gpushare_replay replay{};
  for (int i = 0; i < 20; ++i) {
    ::ioctl(fd, GPUSHARE_IOC_REPLAY, &replay);
    if (consumer != MAP_FAILED) static_cast<gpushare_consumer*>(consumer)->tail = random();
    ::usleep(1000);
  }
  if (consumer != MAP_FAILED) ::munmap(consumer, query.consumer_bytes);
  ::close(fd);
}

// A process of threads that calls until it is killed.
pid_t start_callers(uint32_t seed) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads / 2; ++i)
    threads.emplace_back([seed, i] {
      for (Caller caller(seed * 31 + static_cast<uint32_t>(i));;) caller.step();
    });
  ::pause();
  return 0;
}

uint64_t counted_memory() {
  uint64_t sum = 0;
  for (const auto& tenant : std::filesystem::directory_iterator(kTree + "tenants")) {
    uint64_t bytes = 0;
    std::ifstream(tenant.path() / "memory_current") >> bytes;
    sum += bytes;
  }
  return sum;
}

// By the stand-in driver's own account, see tests/kernel/nvidia/report.c.
uint64_t used_memory() {
  std::ifstream report("/proc/nvidia-standin");
  std::string word;
  while (report >> word)
    if (word.starts_with("used=")) return std::strtoull(word.c_str() + 5, nullptr, 10);
  return 0;
}

// With every caller stopped, so that no call is under way: is what is counted what is used?
bool counts_right(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) ::kill(pid, SIGSTOP);
  for (const pid_t pid : pids) ::waitpid(pid, nullptr, WUNTRACED);
  uint64_t counted = counted_memory(), used = used_memory();
  // What a DMA buffer has held is given back a little after it was released.
  for (int tries = 0; counted != used && tries < 1000; ++tries) {
    ::usleep(1000);
    counted = counted_memory(), used = used_memory();
  }
  for (const pid_t pid : pids) ::kill(pid, SIGCONT);
  if (counted != used)
    std::printf("counted %llu, used %llu\n", static_cast<unsigned long long>(counted),
                static_cast<unsigned long long>(used));
  return counted == used;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fputs("kmod_fuzz SECONDS [SEED]\n", stderr), 2;
  const auto end = Clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  void* shared =
      ::mmap(nullptr, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return std::perror("mmap"), 2;
  calls = new (shared) std::atomic<uint64_t>(0);
  Random random(argc > 2 ? static_cast<uint32_t>(std::atoi(argv[2])) : 1);
  std::vector<pid_t> pids = {start_callers(random()), start_callers(random())};
  bool is_right = true;
  while (Clock::now() < end && is_right) {
    for (int i = 0; i < 20; ++i) change_tenants(random, pids);
    if (random() % 4 == 0) use_the_door(random);
    if (random() % 16 == 0) is_right = counts_right(pids);
    if (random() % 64 == 0) {
      pid_t& pid = pids[random() % pids.size()];
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      pid = start_callers(random());
    }
  }
  for (const pid_t pid : pids) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  std::printf("calls %llu\n", static_cast<unsigned long long>(calls->load()));
  for (int i = 0; i < 4; ++i) write_file(kTree + "remove", "fuzz" + std::to_string(i));
  for (int i = 0; i < 500 && counted_memory() != 0; ++i) ::usleep(10'000);
  if (counted_memory() != 0) return std::puts("memory is held by nobody"), 1;
  return is_right ? 0 : 1;
}
