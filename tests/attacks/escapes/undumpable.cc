// SPDX-License-Identifier: Apache-2.0
// undumpable: becomes the user --uid, makes root the owner of its files in /proc by
// PR_SET_DUMPABLE, so that a rule by user finds another one, and keeps the GPU busy.
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/workloads/common/busy_kernel.h"
#include "tests/workloads/common/flags.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  uint64_t uid = 0, device = 0;
  double seconds = 1000, ns_per_unit = 129.293;

  explicit Settings(Flags& flags) {
    flags.add("--uid", &uid, "the user to become", "--seconds", &seconds, "how long to work",
              "--ns-per-unit", &ns_per_unit, "length of a unit of work");
    flags.parse(&device);
  }
};

int run(const Settings& s) {
  const auto uid = static_cast<uid_t>(s.uid);
  if (::setresuid(uid, uid, uid) != 0) die("setresuid");
  if (::prctl(PR_SET_DUMPABLE, 0) != 0) die("prctl");
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  BusyKernel kernel(session, 4);
  kernel.set_ns_per_unit(s.ns_per_unit);
  const CUstream stream = session.new_stream();
  const uint64_t end = now_ns() + static_cast<uint64_t>(s.seconds * 1e9);
  while (now_ns() < end) {
    kernel.submit(stream, 1, kernel.units_for_us(2000));
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("undumpable", "hides whose process it is.")
