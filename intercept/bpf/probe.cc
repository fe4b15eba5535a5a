// SPDX-License-Identifier: Apache-2.0
#include "intercept/bpf/probe.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "intercept/bpf/driver_probe.skel.h"
#include "intercept/bpf/tracepoint.h"

namespace gpushare {
namespace {

constexpr const char* kBtf = "/sys/kernel/btf/vmlinux";
constexpr size_t kLogBytes = 4096;  // how much of libbpf's log is kept; the verifier's can be long

// What libbpf warned about on this thread since the last take_log().
thread_local std::string libbpf_log;

int collect_log(libbpf_print_level level, const char* format, va_list args) {
  if (level != LIBBPF_WARN || libbpf_log.size() >= kLogBytes) return 0;
  char line[512];
  if (std::vsnprintf(line, sizeof line, format, args) > 0) libbpf_log += line;
  return 0;
}

std::string take_log() {
  std::string text = std::exchange(libbpf_log, {});
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// Says why the kernel refused the probe, and what would help.
std::unexpected<Error> load_error(int code) {
  std::string detail = take_log();
  if (code == EPERM)
    detail = "needs root (CAP_BPF, CAP_PERFMON) and a kernel that is not locked down";
  else if (libbpf_probe_bpf_helper(BPF_PROG_TYPE_TRACEPOINT, BPF_FUNC_task_pt_regs, nullptr) == 0)
    detail = "the kernel is too old: Linux 5.15 or later is needed";
  return std::unexpected(
      Error{std::error_code(code, std::generic_category()), "load eBPF probe", std::move(detail)});
}

Result<> attach(bpf_program* program, const char* tracepoint, bpf_link*& link) {
  Result<Fd> event = open_tracepoint(tracepoint);
  if (!event) return std::unexpected(event.error());
  link = bpf_program__attach_perf_event(program, event->get());
  if (link == nullptr) {
    auto error = errno_error("attach eBPF probe", tracepoint);
    error.error().detail += ": " + take_log();
    return error;
  }
  event->release();  // the link closes it
  return {};
}

}  // namespace

void Probe::Destroy::operator()(driver_probe_skel* skeleton) const {
  driver_probe_skel__destroy(skeleton);
}

Result<Probe> Probe::load(const ProbeOptions& options) {
  if (::access(kBtf, R_OK) != 0)
    return errno_error("load eBPF probe",
                       std::string(kBtf) + " (a kernel with CONFIG_DEBUG_INFO_BTF is needed)");
  struct stat pid_namespace{};
  if (::stat("/proc/self/ns/pid", &pid_namespace) != 0)
    return errno_error("load eBPF probe", "/proc/self/ns/pid");

  libbpf_set_print(collect_log);
  take_log();
  Probe probe(driver_probe_skel__open());
  driver_probe_skel* const skeleton = probe.skeleton_.get();
  if (skeleton == nullptr) return load_error(errno);
  skeleton->rodata->observer_pid = static_cast<uint32_t>(::getpid());
  skeleton->rodata->observer_pid_ns = static_cast<uint32_t>(pid_namespace.st_ino);
  skeleton->rodata->accept_any_file = options.accept_any_file;
  bpf_map__set_max_entries(skeleton->maps.events, options.ring_bytes);
  if (const int error = driver_probe_skel__load(skeleton); error != 0) return load_error(-error);

  // The programs for ends are attached first: a process must not become known before its exit is
  // seen.
  const Attachment attachments[] = {
      {skeleton->progs.process_exit, "sched/sched_process_exit", skeleton->links.process_exit},
      {skeleton->progs.process_exec, "sched/sched_process_exec", skeleton->links.process_exec},
      {skeleton->progs.ioctl_exit, "syscalls/sys_exit_ioctl", skeleton->links.ioctl_exit},
  };
  for (const auto& [program, tracepoint, link] : attachments)
    if (Result<> attached = attach(program, tracepoint, link); !attached)
      return std::unexpected(attached.error());
  return probe;
}

int Probe::ring_fd() const { return bpf_map__fd(skeleton_->maps.events); }

uint64_t Probe::dropped() const {
  std::vector<uint64_t> per_cpu(static_cast<size_t>(libbpf_num_possible_cpus()));
  const uint32_t zero = 0;
  if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.dropped), &zero, per_cpu.data()) != 0)
    return 0;
  return std::accumulate(per_cpu.begin(), per_cpu.end(), uint64_t{0});
}

uint64_t Probe::take_unread(pid_t pid) {
  const int map = bpf_map__fd(skeleton_->maps.unread);
  const auto key = static_cast<uint32_t>(pid);
  uint64_t count = 0;
  if (bpf_map_lookup_elem(map, &key, &count) == 0) bpf_map_delete_elem(map, &key);
  return std::max<uint64_t>(count, 1);
}

Result<> Probe::add_user(pid_t pid) {
  const auto key = static_cast<uint32_t>(pid);
  const uint8_t one = 1;
  if (bpf_map_update_elem(bpf_map__fd(skeleton_->maps.users), &key, &one, BPF_ANY) != 0)
    return errno_error("watch process", std::to_string(pid));
  return {};
}

void Probe::remove_user(pid_t pid) {
  const auto key = static_cast<uint32_t>(pid);
  bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.users), &key);
}

}  // namespace gpushare
