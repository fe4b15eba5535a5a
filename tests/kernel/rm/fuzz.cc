// SPDX-License-Identifier: Apache-2.0
// rm_fuzz makes calls of the driver with arguments that are half right. It runs in the guest,
// statically linked.
//
//   rm_fuzz SEED CALLS THREADS
//
// Each thread makes CALLS calls out of a few handles, classes, controls and sizes, so that many
// succeed: objects are made below each other, duplicated, freed twice. Some pointers lead nowhere,
// into the kernel, or over the end of a mapping. Then it prints "done MADE", the number of calls
// that the driver answered with status 0, and waits for a signal with everything still open.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <random>
#include <thread>
#include <vector>

#include "tests/kernel/nvidia/standin_abi.h"
#include "tests/kernel/rm/device.h"

namespace {

constexpr size_t kPage = 4096;
constexpr uint32_t kDevice = 0x5C000000, kObjects = 24;  // handles: the device's, and how many
std::atomic<uint64_t> made{0};
std::atomic<uint32_t> clients[4];  // of all threads, as the driver named them

class Fuzzer {
 public:
  Fuzzer(uint32_t seed, int fd, int gpu) : random_(seed), fd_(fd), gpu_(gpu) {
    // A page with nothing behind it: arguments at its end cannot be read whole.
    page_ = static_cast<uint8_t*>(
        ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::munmap(page_ + kPage, kPage);
  }
  void step();

 private:
  uint32_t number() { return static_cast<uint32_t>(random_()); }
  uint32_t below(uint32_t n) { return number() % n; }
  bool one_in(uint32_t n) { return below(n) == 0; }
  template <class T>
  T any(std::initializer_list<T> list) {
    return *std::next(list.begin(), below(static_cast<uint32_t>(list.size())));
  }
  uint32_t client() { return one_in(20) ? number() : clients[below(std::size(clients))].load(); }
  uint32_t handle() {
    if (one_in(30)) return number();
    return one_in(4) ? client() : kDevice + below(kObjects);
  }
  uint32_t parent() { return one_in(3) ? handle() : kDevice; }
  uint64_t size() {
    return any<uint64_t>({0, 1, 0x10000, 1 << 20, 3 << 20, 40 << 20, 1ull << 40, ~0ull});
  }
  uint32_t class_id();
  uint32_t command();
  uint64_t params(uint32_t& bytes);
  void fill(uint8_t* argument, uint32_t nr);

  std::mt19937 random_;
  int fd_, gpu_;
  uint8_t* page_;
  alignas(8) uint8_t params_[1024]{};
};

uint32_t Fuzzer::class_id() {
  return any<uint32_t>(
      {GS_CLASS_ROOT_CLIENT, GS_CLASS_DEVICE, GS_CLASS_SUBDEVICE, GS_CLASS_CHANNEL_GROUP, 0xC86F,
       GS_CLASS_MEMORY_LOCAL_USER, GS_CLASS_MEMORY_LOCAL_USER, GS_CLASS_MEMORY_LOCAL_USER,
       GS_CLASS_MEMORY_SYSTEM, GS_CLASS_MEMORY_DEVICELESS, GS_CLASS_EVENT_BUFFER, number()});
}

uint32_t Fuzzer::command() {
  return any<uint32_t>({GS_CTRL_GPU_GET_PROBED_IDS, GS_CTRL_GPU_ATTACH_IDS,
                        GS_CTRL_CLIENT_GET_HANDLE_INFO, GS_CTRL_FB_GET_INFO,
                        GS_CTRL_DISABLE_CHANNELS, GS_CTRL_SET_TIMESLICE, GS_CTRL_GET_TIMESLICE,
                        GS_CTRL_GROUP_SCHEDULE, GS_CTRL_GROUP_PREEMPT, STANDIN_CTRL_SET_BUSY,
                        GS_CTRL_EVENTS_FLUSH, number()});
}

// Where the parameters are: mostly in memory that holds something like them.
uint64_t Fuzzer::params(uint32_t& bytes) {
  std::memset(params_, 0, sizeof params_);
  if (one_in(3)) {
    for (uint8_t& byte : params_) byte = static_cast<uint8_t>(number());
  } else {
    gs_memory_params memory{};
    memory.size = size();
    std::memcpy(params_, &memory, sizeof memory);
  }
  bytes = any<uint32_t>({0, sizeof(gs_memory_params), sizeof(gs_device_params), 8, 4,
                         sizeof(gs_group_params), sizeof(gs_attach_ids), below(2048), number()});
  if (!one_in(8)) return reinterpret_cast<uintptr_t>(params_);
  return any<uint64_t>(
      {0, 16, 0xffff888000000000, ~0ull, reinterpret_cast<uintptr_t>(page_) + kPage - below(64)});
}

void Fuzzer::fill(uint8_t* argument, uint32_t nr) {
  const auto put = [&](const auto& value) { std::memcpy(argument, &value, sizeof value); };
  uint32_t bytes = 0;
  switch (nr) {
    case GS_NV_ESC_RM_ALLOC: {  // its shorter form begins the same
      gs_nvos64 call{};
      call.h_class = class_id();
      call.h_root = call.h_class == GS_CLASS_ROOT_CLIENT && !one_in(4) ? 0 : client();
      call.h_parent = call.h_root == 0 ? 0 : parent();
      call.h_new = call.h_root == 0 ? 0 : handle();
      call.p_params = params(bytes);
      call.params_size = one_in(2) ? sizeof(gs_memory_params) : bytes;
      return put(call);
    }
    case GS_NV_ESC_RM_CONTROL: {
      gs_nvos54 call{client(), handle(), command(), 0, params(bytes), 0, 0};
      call.params_size = bytes;
      return put(call);
    }
    case GS_NV_ESC_RM_FREE:
      return put(gs_nvos00{client(), handle(),
                           one_in(100) ? handle() : kDevice + 1 + below(kObjects - 1), 0});
    case GS_NV_ESC_RM_DUP_OBJECT:
      return put(gs_nvos55{client(), parent(), handle(), client(), handle(), 0, 0});
    case GS_NV_ESC_RM_ALLOC_OBJECT:
      return put(gs_nvos05{client(), parent(), handle(), class_id(), 0});
    case GS_NV_ESC_RM_ALLOC_MEMORY: {
      gs_nvos02_fd call{};
      call.h_root = client();
      call.h_parent = parent();
      call.h_new = handle();
      call.h_class = class_id();
      call.limit = size() - 1;
      return put(call);
    }
    case GS_NV_ESC_RM_VID_HEAP_CONTROL: {
      gs_nvos32_head call{};
      call.h_root = client();
      call.h_parent = parent();
      call.h_memory = handle();
      call.function =
          any<uint32_t>({GS_HEAP_ALLOC_SIZE, GS_HEAP_ALLOC_SIZE_RANGE, GS_HEAP_FREE, 6, 1});
      call.flags = one_in(4) ? GS_HEAP_FLAGS_VIRTUAL : 0;
      call.attr = any<uint32_t>({0, 0, GS_MEMORY_ATTR_LOCATION_PCI, GS_MEMORY_ATTR_LOCATION_MASK});
      call.format = below(8);  // of a surface: its pitch
      call.size = size();
      call.height_or_range_size = size();
      return put(call);
    }
    default:
      for (size_t i = 0; i < sizeof(gs_nvos64); ++i) argument[i] = static_cast<uint8_t>(number());
  }
}

void Fuzzer::step() {
  static constexpr struct {
    uint32_t nr, size, status_at;
  } kCalls[] = {
      {GS_NV_ESC_RM_ALLOC, sizeof(gs_nvos64), offsetof(gs_nvos64, status)},
      {GS_NV_ESC_RM_ALLOC, sizeof(gs_nvos64), offsetof(gs_nvos64, status)},
      {GS_NV_ESC_RM_ALLOC, sizeof(gs_nvos21), offsetof(gs_nvos21, status)},
      {GS_NV_ESC_RM_CONTROL, sizeof(gs_nvos54), offsetof(gs_nvos54, status)},
      {GS_NV_ESC_RM_FREE, sizeof(gs_nvos00), offsetof(gs_nvos00, status)},
      {GS_NV_ESC_RM_DUP_OBJECT, sizeof(gs_nvos55), offsetof(gs_nvos55, status)},
      {GS_NV_ESC_RM_ALLOC_OBJECT, sizeof(gs_nvos05), offsetof(gs_nvos05, status)},
      {GS_NV_ESC_RM_ALLOC_MEMORY, sizeof(gs_nvos02_fd), offsetof(gs_nvos02_fd, status)},
      {GS_NV_ESC_RM_VID_HEAP_CONTROL, 184, offsetof(gs_nvos32_head, status)},
  };
  const auto& call = kCalls[below(std::size(kCalls))];
  alignas(8) uint8_t argument[4096]{};
  fill(argument, call.nr);
  const uint32_t nr = one_in(40) ? below(256) : call.nr;
  const uint32_t size = one_in(40) ? below(512) : call.size;
  uint8_t* at = argument;
  if (one_in(60)) {  // over the end of what is mapped
    at = page_ + kPage - below(call.size + 8);
    std::memcpy(at, argument, std::min<size_t>(call.size, static_cast<size_t>(page_ + kPage - at)));
  }
  const int fd = (nr == GS_NV_ESC_RM_ALLOC_MEMORY) != one_in(50) ? gpu_ : fd_;
  const auto request = [](uint32_t number, size_t bytes) {
    return _IOC(_IOC_READ | _IOC_WRITE, GS_NV_IOCTL_TYPE, number, bytes);
  };
  int rc;
  if (one_in(10)) {
    gs_nv_xfer outer{nr, one_in(10) ? number() : size, reinterpret_cast<uintptr_t>(at)};
    rc = ::ioctl(fd, request(GS_NV_ESC_IOCTL_XFER_CMD, sizeof outer), &outer);
  } else {
    rc = ::ioctl(fd, request(nr, size), at);
  }
  uint32_t status = 0;
  std::memcpy(&status, argument + call.status_at, sizeof status);
  if (rc != 0 || at != argument || nr != call.nr || size != call.size || status != 0) return;
  ++made;
  const auto* answer = reinterpret_cast<const gs_nvos64*>(argument);
  if (nr == GS_NV_ESC_RM_ALLOC && answer->h_class == GS_CLASS_ROOT_CLIENT)
    clients[below(std::size(clients))] = answer->h_new;
}

// Makes a client with a device, at the handles that the fuzzer uses, to begin with.
void make_device(int fd, size_t slot) {
  gs_nvos64 root{};
  root.h_class = GS_CLASS_ROOT_CLIENT;
  ::ioctl(fd, _IOWR('F', GS_NV_ESC_RM_ALLOC, gs_nvos64), &root);
  clients[slot] = root.h_new;
  gs_probed_ids probed{};
  gs_attach_ids attach{};
  const auto control = [&](uint32_t command, void* params, uint32_t bytes) {
    gs_nvos54 call{root.h_new, root.h_new, command, 0, reinterpret_cast<uintptr_t>(params),
                   bytes,      0};
    ::ioctl(fd, _IOWR('F', GS_NV_ESC_RM_CONTROL, gs_nvos54), &call);
  };
  control(GS_CTRL_GPU_GET_PROBED_IDS, &probed, sizeof probed);
  std::memcpy(attach.ids, probed.ids, sizeof attach.ids);
  control(GS_CTRL_GPU_ATTACH_IDS, &attach, sizeof attach);
  gs_device_params params{};
  gs_nvos64 device = device_below(root.h_new, kDevice, params);
  ::ioctl(fd, _IOWR('F', GS_NV_ESC_RM_ALLOC, gs_nvos64), &device);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: rm_fuzz SEED CALLS THREADS\n");
    return 2;
  }
  const auto seed = static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 0));
  const long calls = std::strtol(argv[2], nullptr, 0);
  const int fd = ::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
  const int gpu = ::open("/dev/nvidia0", O_RDWR | O_CLOEXEC);
  int32_t control_file = fd;
  if (fd < 0 || gpu < 0 ||
      ::ioctl(gpu, _IOWR('F', GS_NV_ESC_REGISTER_FD, int32_t), &control_file) != 0) {
    std::fprintf(stderr, "rm_fuzz: no driver\n");
    return 1;
  }
  for (size_t slot = 0; slot < std::size(clients); ++slot) make_device(fd, slot);
  std::vector<std::thread> threads;
  for (long i = 0; i < std::strtol(argv[3], nullptr, 0); ++i)
    threads.emplace_back([=] {
      Fuzzer fuzzer(seed + static_cast<uint32_t>(i), fd, gpu);
      for (long n = 0; n < calls; ++n) {
        if (n % 500 == 499) make_device(fd, static_cast<size_t>(n / 500) % std::size(clients));
        fuzzer.step();
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::printf("done %llu\n", static_cast<unsigned long long>(made.load()));
  std::fflush(stdout);
  for (;;) ::pause();
}
