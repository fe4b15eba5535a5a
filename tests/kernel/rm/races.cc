// SPDX-License-Identifier: Apache-2.0
// Arguments that change or go away while the kernel works on them, and clients that threads race
// for.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>

#include "tests/kernel/rm/changing.h"
#include "tests/kernel/rm/context.h"

namespace gpushare {
namespace {

// A page whose content goes away while the kernel works on it, like one that is fetched from far
// away.
class FleetingPage {
 public:
  FleetingPage() : at_(map()), fd_(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC))) {
    uffdio_api api{UFFD_API, 0, 0};
    if (at_ == MAP_FAILED || fd_ < 0 || ::ioctl(fd_, UFFDIO_API, &api) != 0)
      die("no page that can go");
  }
  void* at() const { return at_; }
  // What is written there stays until there is /tmp/goes, and is there again once there is
  // /tmp/page.
  void go() {
    uffdio_register area{};
    area.range = {reinterpret_cast<uintptr_t>(at_), kBytes};
    area.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (::ioctl(fd_, UFFDIO_REGISTER, &area) != 0) die("the page cannot go");
    std::memcpy(content_, at_, kBytes);
    std::thread([this] {
      await_file("/tmp/goes");
      ::madvise(at_, kBytes, MADV_DONTNEED);
      std::printf("gone\n");
      await_file("/tmp/page");
      uffdio_copy copy{};
      copy.dst = reinterpret_cast<uintptr_t>(at_);
      copy.src = reinterpret_cast<uintptr_t>(content_);
      copy.len = kBytes;
      ::ioctl(fd_, UFFDIO_COPY, &copy);
    }).detach();
  }

 private:
  static constexpr size_t kBytes = 4096;
  static void* map() {
    return ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  void* at_;
  int fd_;
  alignas(kBytes) uint8_t content_[kBytes]{};
};

struct alignas(8) WrappedHead {  // the first members of gs_nv_xfer
  uint32_t command, size;
};

uint64_t calls_in_the_driver() {
  std::ifstream report("/proc/nvidia-standin");
  std::string word;
  report >> word >> word;
  return std::strtoull(word.substr(word.find('=') + 1).c_str(), nullptr, 10);
}

// Starts a thread that makes a call whose answer comes late. Returns when the driver has done it,
// or after half a second if the call is kept from coming there.
template <class Call>
std::thread late_call(uint64_t ms, Call one) {
  set_parameter("answer_delay_ms", ms);
  const uint64_t before = calls_in_the_driver();
  std::thread caller(one);
  for (int i = 0; i < 50 && calls_in_the_driver() == before; ++i) ::usleep(10'000);
  set_parameter("answer_delay_ms", 0);
  return caller;
}

}  // namespace

Answer Context::foreign_dup(int pid) {
  static FleetingPage page;  // lives as long as its thread
  auto& argument = *new (page.at()) gs_nvos55{};
  argument.h_client = client_;
  argument.h_parent = device_;
  argument.h_object = next_++;
  argument.h_client_src = group_of(pid).client;
  argument.h_object_src = memory_;
  if (page_goes_) page.go();
  const Answer answer = call(fd_, GS_NV_ESC_RM_DUP_OBJECT, argument);
  memory_ = argument.h_object;
  return answer;
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

void Context::race_size(uint64_t bytes, bool is_inline) {
  struct {
    gs_nvos32_head head;
    uint8_t rest[184 - sizeof(gs_nvos32_head)];
  } heap{};
  gs_memory_params params{};
  while_changing(is_inline ? heap.head.size : params.size, 1 << 20, bytes, [&] {
    for (int i = 0; i < 100; ++i) {
      ::usleep(1000);  // lets the other thread write, also on few processors
      if (is_inline) {
        heap.head.h_root = client_;
        heap.head.h_parent = device_;
        heap.head.h_memory = next_++;
        heap.head.function = GS_HEAP_ALLOC_SIZE;
        call(fd_, GS_NV_ESC_RM_VID_HEAP_CONTROL, heap);
        continue;
      }
      uint32_t handle = next_++;
      make(device_, handle, GS_CLASS_MEMORY_LOCAL_USER, &params);
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

// The driver takes the preemption of an own group for a question, or for a call that it answers
// before it enters RM.
void Context::race_away(bool is_wrapped) {
  union {
    gs_nvos54 control;
    gs_nv_version version;  // the larger one, so that the driver can read either
  } argument{.version = {}};
  gs_timeslice params{};
  gs_nv_xfer xfer{};
  argument.control.h_client = client_;
  argument.control.h_object = group_;
  argument.control.cmd = GS_CTRL_GROUP_PREEMPT;
  argument.control.p_params = reinterpret_cast<uintptr_t>(&params);
  argument.control.params_size = sizeof params;
  xfer.cmd = GS_NV_ESC_RM_CONTROL;
  xfer.size = sizeof argument.control;
  xfer.ptr = reinterpret_cast<uintptr_t>(&argument);
  constexpr int kTries = 200;
  if (is_wrapped) {
    // The command and its size change at once.
    auto& head = *reinterpret_cast<WrappedHead*>(&xfer);
    while_changing(head, {GS_NV_ESC_RM_CONTROL, sizeof argument.control},
                   {GS_NV_ESC_CHECK_VERSION_STR, sizeof argument.version}, [&] {
                     for (int i = 0; i < kTries; ++i) call(fd_, GS_NV_ESC_IOCTL_XFER_CMD, xfer);
                   });
  } else {
    while_changing(argument.control.cmd, GS_CTRL_GROUP_PREEMPT, GS_CTRL_GET_TIMESLICE, [&] {
      for (int i = 0; i < kTries; ++i) call(fd_, GS_NV_ESC_RM_CONTROL, argument.control);
    });
  }
}

// The answer is late, so what is made below the client meanwhile is below one that is not known.
template <class Below>
void Context::with_client_in_the_making(Below below) {
  gs_attach_ids attach = all_gpus();
  uint32_t handle = 0;
  std::thread root = late_call(2000, [&] { must(make_client(handle), "client"); });
  ++client_;  // the stand-in counts them up
  must(control(client_, GS_CTRL_GPU_ATTACH_IDS, attach), "attach");
  below();
  root.join();
  if (handle != client_) die("the client is another than was guessed");
}

void Context::race_client(uint64_t bytes) {
  with_client_in_the_making([&] {
    uint32_t device = next_++, memory = next_++;
    std::thread other = late_call(1000, [&] {
      gs_device_params params{};
      must(make(client_, device, GS_CLASS_DEVICE, &params), "device");
    });
    std::thread small =
        late_call(600, [&] { must(make_memory(fd_, client_, device, memory, 1 << 20), "memory"); });
    must(free_object(memory), "freed");
    must(make_memory(fd_, client_, device, memory, bytes), "memory again");
    small.join();
    other.join();
  });
}

void Context::race_file(uint64_t bytes) {
  const int other_file = ::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
  if (other_file < 0) die("no second file");
  with_client_in_the_making([&] {
    std::thread namer = late_call(600, [&] {
      gs_device_params params{};
      uint32_t handle = next_ + 1000;
      if (make_on(other_file, client_, client_, handle, GS_CLASS_DEVICE, &params).is_ok())
        die("the driver lets a client be used on another file");
    });
    gs_device_params params{};
    uint32_t device = next_++;
    must(make(client_, device, GS_CLASS_DEVICE, &params), "device");
    must(make_memory(fd_, client_, device, next_++, bytes), "memory");
    namer.join();
    ::close(other_file);
  });
}

void Context::allocate_for(uint64_t ms) {
  set_parameter("delay_ms", ms);
  std::thread([this] { make_memory(fd_, client_, device_, next_ + 1000, 1 << 20); }).detach();
  ::usleep(300'000);  // Nothing tells when it has come into the driver, where it sleeps.
  set_parameter("delay_ms", 0);
}

void Context::foreign_alloc_for(int pid) {
  const uint32_t other = group_of(pid).client;
  late_call(1500, [this, other] {
    make_memory(fd_, other, device_, next_ + 1000, 1 << 20);
  }).detach();
}

}  // namespace gpushare
