// SPDX-License-Identifier: Apache-2.0
// daemonise: leaves the process that was put into a tenant, and uses the GPU in one that is no
// child of it any more. --how says the way: `setsid` (a child in a session of its own, whose parent
// ends), `double-fork` (the daemon's), `clone-parent` (a sibling instead of a child), `exec` (as
// setsid, and another program by exec after a first use of the GPU), `vfork-exec` (another program
// by vfork), `thread-exec` (as setsid, and another program by an exec of a second thread),
// `namespaces` (the first process of new user, pid and mount namespaces). It prints the pid of what
// does the work, as the tests see it.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/workloads/common/busy_kernel.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  std::string how = "setsid";
  double seconds = 1000, ns_per_unit = 129.293, kernel_us = 2000;
  uint64_t later_ms = 0, stays = 0, device = 0;

  explicit Settings(Flags& flags) {
    flags.add("--how", &how,
              "setsid, double-fork, clone-parent, exec, vfork-exec, thread-exec, namespaces; none: "
              "in this process",
              "--seconds", &seconds, "how long to work", "--later-ms", &later_ms,
              "how long the daemon waits before it touches the GPU", "--stays", &stays,
              "1: the first process does not end", "--kernel-us", &kernel_us, "length of a kernel",
              "--ns-per-unit", &ns_per_unit, "length of a unit of work, 0: measure it");
    flags.parse(&device);
  }
};

void work(const Settings& s, double seconds) {
  const GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  BusyKernel kernel(session, 4);
  const CUstream stream = session.new_stream();
  kernel.use_ns_per_unit(s.ns_per_unit, stream);
  const uint64_t start = now_ns(), end = start + static_cast<uint64_t>(seconds * 1e9);
  double done_ms = 0;
  CUevent ends[2] = {session.new_event(CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC),
                     session.new_event(CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC)};
  for (uint64_t i = 0; now_ns() < end; ++i) {
    kernel.submit(stream, 1, kernel.units_for_us(s.kernel_us));
    check(cuEventRecord(ends[i % 2], stream), "cuEventRecord");
    if (i == 0) continue;
    check(cuEventSynchronize(ends[(i + 1) % 2]), "cuEventSynchronize");
    done_ms += s.kernel_us / 1000;
  }
  const double elapsed_ms = static_cast<double>(now_ns() - start) / 1e6;
  JsonLine()
      .add("done_ms", done_ms)
      .add("elapsed_ms", elapsed_ms)
      .add("gpu_share", done_ms / elapsed_ms)
      .print();
}

// A child of whoever is our parent.
pid_t fork_sibling() {
  return static_cast<pid_t>(::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, 0, 0, 0));
}

void wait_for_another_parent(pid_t than) {
  while (::getppid() == than) sleep_until_ns(now_ns() + 1'000'000);
}

// This program once more, which works in the process that calls it.
void become_another(const Settings& s, uint64_t later_ms) {
  const std::string seconds = std::to_string(s.seconds), unit = std::to_string(s.ns_per_unit),
                    later = std::to_string(later_ms);
  ::execl("/proc/self/exe", "daemonise", "--how", "none", "--seconds", seconds.c_str(),
          "--ns-per-unit", unit.c_str(), "--later-ms", later.c_str(), nullptr);
  die("exec");
}

// A line of a file of /proc/self. What cannot be written stays as it is.
void tell(const char* file, const std::string& line) {
  const int fd = ::open(file, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (::write(fd, line.data(), line.size()) < 0) ::perror(file);
  ::close(fd);
}

// Into new user, pid and mount namespaces, of which the next child is the first process. Its user
// is this one's, as a container's is: who has no number in its namespace cannot use the driver.
void enter_namespaces() {
  const std::string user = std::to_string(::getuid()), group = std::to_string(::getgid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) != 0) die("unshare");
  tell("/proc/self/setgroups", "deny");
  tell("/proc/self/uid_map", "0 " + user + " 1");
  tell("/proc/self/gid_map", "0 " + group + " 1");
}

// The driver's library looks at /proc/PID, so that it wants the /proc of its own namespace. Where
// the outer one is partly covered, as in a container, the kernel does not allow another.
void see_own_processes() {
  if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
    ::perror("mount /proc");
}

// Returns in the process that shall do the work.
void leave(const Settings& s, pid_t first) {
  if (s.how == "namespaces") enter_namespaces();
  if (s.how == "vfork-exec") {
    const pid_t child = ::vfork();
    if (child < 0) die("vfork");
    if (child == 0) become_another(s, s.later_ms);
    ::_exit(0);
  }
  const pid_t child = s.how == "clone-parent" ? fork_sibling() : ::fork();
  if (child < 0) die("fork");
  if (child > 0) {
    while (s.stays != 0) ::pause();
    ::_exit(0);
  }
  ::setsid();
  if (s.how == "double-fork") {
    const pid_t between = ::getpid();
    if (::fork() != 0) ::_exit(0);
    wait_for_another_parent(between);
  } else if (s.how == "namespaces") {
    // Its parent has no number here, before its end and after.
  } else if (s.how != "clone-parent" && s.stays == 0) {
    wait_for_another_parent(first);
  }
}

// By /proc, which is of the namespace in which the tests are.
int outer_pid() {
  char text[16] = {};
  if (::readlink("/proc/self", text, sizeof text - 1) < 0) die("readlink /proc/self");
  return std::atoi(text);
}

int run(const Settings& s) {
  if (s.how != "none") leave(s, ::getpid());
  sleep_until_ns(now_ns() + s.later_ms * 1'000'000);
  if (s.how == "exec") {
    work(s, 0.05);
    become_another(s, 1500);
  }
  if (s.how == "thread-exec") std::thread([&] { become_another(s, 0); }).join();
  JsonLine().add("pid", outer_pid()).print();
  if (s.how == "namespaces") see_own_processes();
  work(s, s.seconds);
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("daemonise", "uses the GPU in a process that nobody is the parent of.")
