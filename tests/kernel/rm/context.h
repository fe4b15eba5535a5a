// SPDX-License-Identifier: Apache-2.0
// What rm_client does at the driver's ioctl boundary: the context of a CUDA program, and what else
// a program may try. Nothing here prints. An answer that must not happen ends the program. One
// thread uses it; the races start threads of their own.
#pragma once

#include <sys/ioctl.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/kernel/nvidia/standin_abi.h"

namespace gpushare {

constexpr uint32_t kFirstHandle = 0x5C000001;
constexpr uint32_t kHopperChannel = 0xC86F;
constexpr uint32_t kHopperCompute = 0xCBC0;
constexpr int kChannels = 8;
constexpr uint32_t kOwnSliceUs = 2048;

// The driver's answer: its status, or the errno of the ioctl.
struct Answer {
  uint32_t status = 0;
  int error = 0;
  bool is_ok() const { return status == 0 && error == 0; }
};

// Prints why, and ends the program with status 2.
[[noreturn]] void die(const std::string& text);

// Sets one of the stand-in's parameters.
void set_parameter(const char* name, uint64_t value);
// Waits until there is such a file.
void await_file(const char* path);

// The calls from here on are made as 32-bit programs make them.
extern bool is_compat;
// ioctl() by the system call of 32-bit programs. The argument is copied to where their pointers
// reach; what it points to may be anywhere.
int compat_ioctl(int fd, unsigned long request, void* argument, size_t bytes);

template <class T>
Answer call(int fd, unsigned nr, T& argument) {
  const unsigned long request = _IOC(_IOC_READ | _IOC_WRITE, GS_NV_IOCTL_TYPE, nr, sizeof argument);
  const int ret = is_compat ? compat_ioctl(fd, request, &argument, sizeof argument)
                            : ::ioctl(fd, request, &argument);
  if (ret != 0) return {0, errno};
  if constexpr (requires { argument.status; }) return {argument.status, 0};
  return {};
}

struct Group {
  unsigned client = 0, handle = 0;
};
// The first group of a process, as the stand-in reports it.
Group group_of(int pid);

// The argument of RM_ALLOC, in either of its forms.
template <class Argument, class Params>
Argument allocation(uint32_t client, uint32_t parent, uint32_t handle, uint32_t class_id,
                    Params* params) {
  Argument argument{};
  argument.h_root = client;
  argument.h_parent = parent;
  argument.h_new = handle;
  argument.h_class = class_id;
  argument.p_params = reinterpret_cast<uintptr_t>(params);
  argument.params_size = params == nullptr ? 0 : sizeof *params;
  return argument;
}

// The words of client.cc say what the members of the same name do.
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
  Answer free_two();
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

  // escapes.cc
  Answer linked(uint64_t bytes);
  Answer linked_child(uint64_t bytes);
  Answer preemption_mode(uint32_t mode);
  Answer serialized(std::string_view kind);
  Answer schedule_duplicate();
  Answer display_memory(uint64_t how);
  Answer uvm_map();
  Answer uvm_map_raced(uint64_t bytes);
  Answer uvm_unmap(uint32_t number);
  void uvm_close();
  Answer export_memory(uint32_t place);
  Answer import_memory(uint32_t place);
  Answer export_many();
  Answer export_raced();
  void close_carrier();
  Answer slice_of_nobody(uint64_t us);
  void short_lives(uint64_t count);
  void go_deep(const std::string& cgroup);

  // handover.cc
  void go_on_in_child();
  void leave_open();
  [[noreturn]] void exec_open();
  void send_to(const std::string& path);
  void receive_at(const std::string& path);

  // dma_buf.cc
  Answer dma_buf();
  Answer foreign_dma_buf(int pid);
  Answer dma_buf_of_two();
  Answer dma_buf_half();
  Answer dma_buf_raced(std::string_view how, int pid);
  Answer dma_buf_swapped();
  void close_dma_bufs();

  // races.cc
  Answer foreign_dup(int pid);
  void let_page_go() { page_goes_ = true; }
  uint64_t race(uint64_t us);
  uint64_t race_slice(uint64_t us);
  void race_away(bool is_wrapped);
  void race_size(uint64_t bytes, bool is_inline);
  void race_client(uint64_t bytes);
  void race_file(uint64_t bytes);
  void allocate_for(uint64_t ms);
  void foreign_alloc_for(int pid);

 private:
  gs_attach_ids all_gpus();
  Answer export_dma_buf(dma_buf_export& argument);
  Answer make_memory(int fd, uint32_t client, uint32_t parent, uint32_t handle, uint64_t bytes) {
    gs_memory_params params{};
    params.size = bytes;
    return make_on(fd, client, parent, handle, GS_CLASS_MEMORY_LOCAL_USER, &params);
  }
  template <class Below>
  void with_client_in_the_making(Below below);
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
    return make_on(fd_, client_, parent, handle, class_id, params);
  }
  template <class T>
  Answer make_on(int fd, uint32_t client, uint32_t parent, uint32_t& handle, uint32_t class_id,
                 T* params) {
    auto argument = allocation<gs_nvos64>(client, parent, handle, class_id, params);
    const Answer answer = call(fd, GS_NV_ESC_RM_ALLOC, argument);
    handle = argument.h_new;
    return answer;
  }
  static void must(const Answer& answer, const char* step) {
    if (!answer.is_ok())
      die(std::string(step) + ": status " + std::to_string(answer.status) + ", errno " +
          std::to_string(answer.error));
  }

  Answer uvm_map_of(uint32_t memory);

  int fd_ = -1, gpu_fd_ = -1, uvm_fd_ = -1, carrier_ = -1;
  uint32_t client_ = 0, device_ = 0, subdevice_ = 0, group_ = 0, memory_ = 0;
  uint32_t next_ = kFirstHandle;
  bool page_goes_ = false;
  std::vector<int> dma_bufs_;
  std::vector<uint32_t> channels_;
};

}  // namespace gpushare
