// SPDX-License-Identifier: Apache-2.0
#include "intercept/bpf/tracepoint.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>

#include <cstdlib>
#include <string>

namespace gpushare {
namespace {

// Makes a tracefs that is mounted nowhere. glibc has functions for these calls only since 2.36.
Fd detached_tracefs() {
  const Fd context(static_cast<int>(::syscall(SYS_fsopen, "tracefs", FSOPEN_CLOEXEC)));
  if (!context.is_open() ||
      ::syscall(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return {};
  return Fd(static_cast<int>(::syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, 0)));
}

// Returns the root directory of a tracefs, or a closed Fd when there is none.
Fd open_tracefs() {
  for (const char* root : {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}) {
    Fd directory(::open(root, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (directory.is_open() && ::faccessat(directory.get(), "events", F_OK, 0) == 0)
      return directory;
  }
  return detached_tracefs();
}

Result<uint64_t> tracepoint_id(const char* name) {
  const Fd tracefs = open_tracefs();
  if (!tracefs.is_open())
    return errno_error("open tracefs",
                       "cannot be mounted; as root: mount -t tracefs nodev /sys/kernel/tracing");
  const std::string path = std::string("events/") + name + "/id";
  const Fd file(::openat(tracefs.get(), path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return errno_error("find tracepoint in tracefs", path);
  char text[32] = {};
  if (::read(file.get(), text, sizeof text - 1) <= 0) return errno_error("read tracepoint", path);
  return std::strtoull(text, nullptr, 10);
}

}  // namespace

Result<Fd> open_tracepoint(const char* name) {
  const Result<uint64_t> id = tracepoint_id(name);
  if (!id) return std::unexpected(id.error());
  perf_event_attr attr{};
  attr.type = PERF_TYPE_TRACEPOINT;
  attr.size = sizeof attr;
  attr.config = *id;
  // A BPF program on a tracepoint runs for every task on every CPU, whatever CPU the event is on.
  Fd event(
      static_cast<int>(::syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC)));
  if (!event.is_open()) return errno_error("open tracepoint", name);
  return event;
}

}  // namespace gpushare
