// SPDX-License-Identifier: Apache-2.0
// DMA buffers: memory that is in one outlives the program's own object of it. The module looks at
// the head of the argument, and the driver reads it all a little later.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <new>
#include <string>
#include <thread>

#include "tests/kernel/rm/changing.h"
#include "tests/kernel/rm/context.h"

namespace gpushare {
namespace {

dma_buf_export export_of(uint32_t client, uint32_t memory) {
  dma_buf_export argument{};
  argument.fd = -1;
  argument.client = client;
  argument.total = argument.count = 1;
  argument.handles[0] = memory;
  argument.bytes = argument.sizes[0] = 65536;
  return argument;
}

bool is_in_the_driver(pid_t thread) {
  std::ifstream place("/proc/self/task/" + std::to_string(thread) + "/wchan");
  std::string name;
  place >> name;
  return name.find("msleep") != std::string::npos;
}

// Makes a call, and `change` while the driver has not read the argument yet.
template <class Call, class Change>
Answer changed_in_mid_call(Call one, Change change) {
  constexpr uint32_t kUntilItIsEnded = 60'000;
  const pid_t caller = ::gettid();
  set_parameter("delay_ms", kUntilItIsEnded);
  std::thread changer([&] {
    while (!is_in_the_driver(caller)) ::usleep(1000);
    change();
    set_parameter("delay_ms", 0);
    set_parameter("delays_ended", static_cast<uint32_t>(
                                      std::chrono::steady_clock::now().time_since_epoch().count()));
  });
  const Answer answer = one();
  changer.join();
  return answer;
}

}  // namespace

Answer Context::export_dma_buf(dma_buf_export& argument) {
  const Answer answer = call(gpu_fd_, DMA_BUF_ESC_EXPORT, argument);
  if (answer.is_ok() && argument.fd >= 0) dma_bufs_.push_back(argument.fd);
  return answer;
}

Answer Context::dma_buf() {
  dma_buf_export argument = export_of(client_, memory_);
  return export_dma_buf(argument);
}

Answer Context::foreign_dma_buf(int pid) {
  dma_buf_export argument = export_of(group_of(pid).client, memory_);
  return export_dma_buf(argument);
}

// Two objects by two calls, of which the second adds to the buffer that the first has made.
Answer Context::dma_buf_of_two() {
  dma_buf_export argument = export_of(client_, memory_ - 1);
  argument.total = 2;
  argument.bytes *= 2;
  must(export_dma_buf(argument), "first");
  argument.index = 1;
  argument.handles[0] = memory_;
  return call(gpu_fd_, DMA_BUF_ESC_EXPORT, argument);
}

// The second object is none, so that the driver takes the first one out again.
Answer Context::dma_buf_half() {
  dma_buf_export argument = export_of(client_, memory_);
  argument.total = argument.count = 2;
  argument.bytes *= 2;
  argument.handles[1] = memory_ + 1000;
  argument.sizes[1] = argument.sizes[0];
  return export_dma_buf(argument);
}

Answer Context::dma_buf_raced(std::string_view how, int pid) {
  dma_buf_export argument = export_of(client_, memory_ - 1);
  const auto change = [&] {
    if (how == "handle") argument.handles[0] = memory_;
    if (how == "client") argument.client = group_of(pid).client;
    if (how == "count") {
      argument.total = argument.count = 2;
      argument.bytes *= 2;
      argument.handles[1] = memory_, argument.sizes[1] = argument.sizes[0];
    }
  };
  return changed_in_mid_call([&] { return export_dma_buf(argument); }, change);
}

// A command that the module does not look at becomes an export before the driver reads which it is.
Answer Context::dma_buf_swapped() {
  const auto page = static_cast<gs_nv_xfer*>(::mmap(
      nullptr, sizeof(gs_nv_xfer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (page == MAP_FAILED) die("no page");
  dma_buf_export argument = export_of(client_, memory_);
  gs_nv_xfer& xfer = *new (page) gs_nv_xfer{};
  xfer.size = sizeof argument;
  xfer.ptr = reinterpret_cast<uintptr_t>(&argument);
  constexpr unsigned long kRequest =
      _IOC(_IOC_READ | _IOC_WRITE, GS_NV_IOCTL_TYPE, GS_NV_ESC_IOCTL_XFER_CMD, sizeof xfer);
  constexpr uint32_t kNoAnswer = 0xFFFF;
  Answer answer{};
  while_changing(xfer.cmd, 0, DMA_BUF_ESC_EXPORT, [&] {
    for (int i = 0; i < 100'000 && answer.is_ok(); ++i) {
      argument.fd = -1;
      argument.status = kNoAnswer;
      if (::ioctl(gpu_fd_, kRequest, &xfer) != 0 || argument.status == kNoAnswer) continue;
      answer.status = argument.status;
      if (argument.status == 0) ::close(argument.fd);  // the module has seen it
    }
  });
  return answer;
}

void Context::close_dma_bufs() {
  for (const int fd : dma_bufs_) ::close(fd);
  dma_bufs_.clear();
}

}  // namespace gpushare
