// SPDX-License-Identifier: Apache-2.0
// What a program may try in order to have more than its tenant, by ways around what the module
// watches.
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <thread>
#include <utility>

#include "tests/kernel/rm/context.h"

namespace gpushare {
namespace {

int open_control() {
  const int file = ::open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
  if (file < 0) die("no control file more");
  return file;
}

}  // namespace

// A control file that is registered to another one makes a client, which the driver keeps with the
// other. The first one is closed.
Answer Context::linked(uint64_t bytes) {
  const int second = open_control();
  gs_s32 first = fd_;
  must(call(second, GS_NV_ESC_REGISTER_FD, first), "register a control file");
  uint32_t client = 0;
  gs_attach_ids attach = all_gpus();
  const Answer made = make_on<int>(second, 0, 0, client, GS_CLASS_ROOT_CLIENT, nullptr);
  if (!made.is_ok()) return ::close(second), made;
  const uint32_t own = std::exchange(client_, client);
  const int own_file = std::exchange(fd_, second);
  must(control(client_, GS_CTRL_GPU_ATTACH_IDS, attach), "attach");
  uint32_t device = next_++;
  gs_device_params params{};
  must(make(client_, device, GS_CLASS_DEVICE, &params), "device");
  const Answer answer = make_memory(fd_, client_, device, next_++, bytes);
  client_ = own, fd_ = own_file;
  ::close(second);
  return answer;
}

// A child takes memory below this process's client, by a control file of its own that speaks for
// it, and ends.
Answer Context::linked_child(uint64_t bytes) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int second = open_control();
    gs_s32 first = fd_;
    must(call(second, GS_NV_ESC_REGISTER_FD, first), "register a control file");
    const Answer answer = make_memory(second, client_, device_, next_, bytes);
    ::_exit(answer.error != 0 ? 255 : static_cast<int>(answer.status));
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) die("no child");
  ++next_;
  return WEXITSTATUS(status) == 255 ? Answer{0, EIO}
                                    : Answer{static_cast<uint32_t>(WEXITSTATUS(status)), 0};
}

Answer Context::preemption_mode(uint32_t mode) {
  struct {
    uint32_t flags, h_channel, graphics_mode, compute_mode;
    uint64_t route[2];
  } params{1, channels_.front(), 0, mode, {}};
  return control(subdevice_, 0x20801210, &params, sizeof params);
}

// The parameters are in the usual form all the same: what counts is that the module cannot read
// them.
Answer Context::serialized(std::string_view kind) {
  constexpr uint32_t kIsSerialized = 1;
  gs_device_params on{};
  gs_group_params runs{};
  runs.engine_type = GS_ENGINE_TYPE_GR0;
  auto argument =
      kind == "device"
          ? allocation<gs_nvos64>(client_, client_, next_++, GS_CLASS_DEVICE, &on)
          : allocation<gs_nvos64>(client_, device_, next_++, GS_CLASS_CHANNEL_GROUP, &runs);
  argument.flags = kIsSerialized;
  return call(fd_, GS_NV_ESC_RM_ALLOC, argument);
}

// A second group is given another name before it is put on the runlist, and is then put there by
// both.
Answer Context::schedule_duplicate() {
  gs_group_params params{};
  params.engine_type = GS_ENGINE_TYPE_GR0;
  uint32_t group = next_++;
  must(make(device_, group, GS_CLASS_CHANNEL_GROUP, &params), "group");
  gs_nvos55 argument{};
  argument.h_client = argument.h_client_src = client_;
  argument.h_parent = device_;
  argument.h_object = next_++;
  argument.h_object_src = group;
  must(call(fd_, GS_NV_ESC_RM_DUP_OBJECT, argument), "duplicate");
  uint8_t on[2]{1, 0};
  must(control(group, GS_CTRL_GROUP_SCHEDULE, on, sizeof on), "schedule");
  return control(argument.h_object, GS_CTRL_GROUP_SCHEDULE, on, sizeof on);
}

// nvidia-drm makes it, behind a device file of its own.
Answer Context::display_memory(uint64_t how) {
  const int file = ::open("/dev/nvidia-gem", O_RDWR | O_CLOEXEC);
  if (file < 0) die("no nvidia-drm");
  const int ret = ::ioctl(file, _IO('d', how), 0);
  const Answer answer{0, ret == 0 ? 0 : errno};
  ::close(file);
  return answer;
}

Answer Context::uvm_map_of(uint32_t memory) {
  if (uvm_fd_ < 0) uvm_fd_ = ::open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
  if (uvm_fd_ < 0) die("no nvidia-uvm");
  standin_uvm_map argument{client_, memory, 0, 0};
  if (::ioctl(uvm_fd_, STANDIN_UVM_MAP, &argument) != 0) return {0, errno};
  return {argument.status, 0};
}

Answer Context::uvm_map() { return uvm_map_of(memory_); }

// While the newest memory is being mapped another thread frees it, and makes more under its handle.
Answer Context::uvm_map_raced(uint64_t bytes) {
  std::thread swapper([this, bytes] {
    ::usleep(100'000);
    must(free_memory(), "free");
    uint32_t handle = memory_;
    must(make_memory(fd_, client_, device_, handle, bytes), "memory under the same handle");
  });
  const Answer answer = uvm_map();
  swapper.join();
  return answer;
}

Answer Context::uvm_unmap(uint32_t number) {
  standin_uvm_map argument{0, 0, number, 0};
  return {0, ::ioctl(uvm_fd_, STANDIN_UVM_UNMAP, &argument) == 0 ? 0 : errno};
}

void Context::uvm_close() {
  ::close(uvm_fd_);
  uvm_fd_ = -1;
}

Answer Context::export_memory(uint32_t place) {
  if (carrier_ < 0) carrier_ = open_control();
  if (place == 0) {
    carry_export_one one{1, device_, device_, memory_, carrier_, 0};
    return control(client_, CARRY_CTRL_EXPORT_ONE, one);
  }
  carry_export some{};
  some.fd = carrier_, some.device = device_, some.places = 8;
  some.count = 1, some.first = static_cast<uint16_t>(place);
  some.objects[0] = memory_;
  return control(client_, CARRY_CTRL_EXPORT, some);
}

// Fills a control file in one call: the last place has the newest memory, the others that before.
Answer Context::export_many() {
  carrier_ = open_control();
  carry_export some{};
  some.fd = carrier_, some.device = device_;
  some.places = some.count = CARRY_EXPORT_MAX;
  std::fill(std::begin(some.objects), std::end(some.objects) - 1, memory_ - 1);
  some.objects[CARRY_EXPORT_MAX - 1] = memory_;
  return control(client_, CARRY_CTRL_EXPORT, some);
}

Answer Context::import_memory(uint32_t place) {
  memory_ = next_++;
  if (place == 0) {
    carry_import_one one{carrier_, 1, device_, device_, memory_};
    return control(client_, CARRY_CTRL_IMPORT_ONE, one);
  }
  carry_import some{};
  some.fd = carrier_, some.parent = device_;
  some.count = 1, some.first = static_cast<uint16_t>(place);
  some.objects[0] = memory_;
  return control(client_, CARRY_CTRL_IMPORT, some);
}

// Another thread lets the descriptor lead to another control file and back, while RM looks.
Answer Context::export_raced() {
  carrier_ = open_control();
  const int other = open_control(), kept = ::dup(carrier_);
  std::atomic<bool> is_over = false;
  std::thread swapper([&] {
    while (!is_over) ::dup2(other, carrier_), ::dup2(kept, carrier_);
  });
  carry_export_one one{1, device_, device_, memory_, carrier_, 0};
  const Answer answer = control(client_, CARRY_CTRL_EXPORT_ONE, one);
  is_over = true;
  swapper.join();
  return answer;  // both files stay open
}

void Context::close_carrier() {
  ::close(carrier_);
  carrier_ = -1;
}

// The client is nobody's: RM makes none with this handle.
Answer Context::slice_of_nobody(uint64_t us) {
  constexpr uint32_t kNobody = 0xC1DFFFFF;
  gs_timeslice slice{us};
  return control_of(kNobody, group_, GS_CTRL_SET_TIMESLICE, &slice, sizeof slice);
}

// The leader of each process ends first, then the threads, and the parent reaps it at once.
void Context::short_lives(uint64_t count) {
  constexpr int kThreads = 4;
  for (uint64_t i = 0; i < count; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int thread = 0; thread < kThreads; ++thread)
        std::thread([thread] {
          std::printf("%d\n", static_cast<int>(::gettid()));
          ::usleep(static_cast<useconds_t>(200 * thread));
        }).detach();
      ::pthread_exit(nullptr);
    }
    int status = 0;
    if (child > 0) ::waitpid(child, &status, 0);
  }
}

void Context::go_deep(const std::string& cgroup) {
  const std::string name(200, 'a');
  if (::chdir(cgroup.c_str()) != 0) die("no cgroup " + cgroup);
  for (int depth = 0; depth < 24; ++depth)
    if (::mkdir(name.c_str(), 0755) != 0 || ::chdir(name.c_str()) != 0) die("no cgroup below");
  const int procs = ::open("cgroup.procs", O_WRONLY | O_CLOEXEC);
  if (procs < 0 || ::write(procs, "0", 1) != 1) die("it cannot go there");
  ::close(procs);
}

}  // namespace gpushare
