// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel/rm/cost.h"

#include <fcntl.h>

#include <algorithm>
#include <ctime>

namespace gpushare {
namespace {

// With -icount shift=0 an instruction takes one nanosecond. A tick of a timer makes a batch longer,
// and the shortest of many batches has none.
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

// Makes twenty, and frees them again unless they are to be kept. It makes another client each time,
// so that the twenty are not always the same records of the kernel's allocator and some batch has
// them all on one page. Another page costs 16 instructions a call, which would be there by chance.
double making_ns(Context& context, std::string_view kind) {
  uint32_t handles[kCalls] = {}, another = 0;
  if (!context.make_client(another).is_ok()) die("no client more between two batches");
  const double making = batch_ns([&](int i) { return context.make_one(kind, handles[i]).is_ok(); });
  if (kind == "kept") return making;
  const double freeing = batch_ns([&](int i) { return context.free_object(handles[i]).is_ok(); });
  return kind == "free" ? freeing : making;
}

}  // namespace

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
    else if (kind == "refused")  // by the driver or by the module
      ns = batch_ns([&](int) { return !context.any_control(GS_CTRL_SET_INTERLEAVE).is_ok(); });
    else if (kind == "other")
      ns = batch_ns([&](int) { return ::ioctl(other, FIONREAD, &unused) != 0; });  // ENOTTY
    else
      ns = making_ns(context, kind);
    least = std::min(least, ns);
  }
  return least;
}

}  // namespace gpushare
