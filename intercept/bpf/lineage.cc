// SPDX-License-Identifier: Apache-2.0
#include "intercept/bpf/lineage.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "intercept/bpf/founder.h"
#include "intercept/bpf/lineage.skel.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

constexpr const char* kLoad = "follow forks by eBPF";

std::unexpected<Error> load_error(int code) {
  return std::unexpected(
      Error{std::error_code(code, std::generic_category()), kLoad,
            code == EPERM ? "needs root (CAP_BPF, CAP_PERFMON) and a kernel that is not locked down"
                          : "needs Linux 5.15 or later with BTF"});
}

// The processes that a thread of `pid` has started and that are still below it.
std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code gone;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, gone)) {
    std::ifstream list(task.path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

}  // namespace

void BpfLineage::Destroy::operator()(lineage_skel* skeleton) const {
  lineage_skel__destroy(skeleton);
}

Result<std::unique_ptr<BpfLineage>> BpfLineage::start() {
  struct stat pid_namespace{};
  if (::stat("/proc/self/ns/pid", &pid_namespace) != 0)
    return errno_error(kLoad, "/proc/self/ns/pid");
  libbpf_set_print(nullptr);
  std::unique_ptr<BpfLineage> self(new BpfLineage(lineage_skel__open()));
  lineage_skel* const skeleton = self->skeleton_.get();
  if (skeleton == nullptr) return load_error(errno);
  skeleton->rodata->observer_pid_ns = static_cast<uint32_t>(pid_namespace.st_ino);
  bpf_map__set_max_entries(skeleton->maps.descendants, kMostProcesses);
  if (const int error = lineage_skel__load(skeleton); error != 0) return load_error(-error);
  // The exit first: what enters the map must be seen to leave it.
  const struct {
    bpf_program* program;
    const char* tracepoint;
    bpf_link*& link;
  } attachments[] = {
      {skeleton->progs.lineage_exit, "sched_process_exit", skeleton->links.lineage_exit},
      {skeleton->progs.lineage_fork, "sched_process_fork", skeleton->links.lineage_fork},
  };
  for (const auto& [program, tracepoint, link] : attachments) {
    link = bpf_program__attach_raw_tracepoint(program, tracepoint);
    if (link == nullptr) return load_error(errno);
  }
  return self;
}

int BpfLineage::map() const { return bpf_map__fd(skeleton_->maps.descendants); }

Result<> BpfLineage::enter(pid_t pid, const ProcessId& founder) {
  const auto key = static_cast<uint32_t>(pid);
  const gs_founder value{
      .start_ticks = founder.start_ticks, .pid = static_cast<uint32_t>(founder.pid), .pad = 0};
  if (bpf_map_update_elem(map(), &key, &value, BPF_ANY) != 0)
    return errno_error("follow process", std::to_string(pid));
  return {};
}

Result<> BpfLineage::follow(const ProcessId& founder) {
  const std::optional<ProcessId> before = founder_of(founder.pid);
  if (auto entered = enter(founder.pid, founder); !entered) return entered;
  if (start_ticks_of(founder.pid) != founder.start_ticks) {
    // It ended before it was in the map, so that its exit has not taken it out.
    const auto key = static_cast<uint32_t>(founder.pid);
    bpf_map_delete_elem(map(), &key);
    return make_error(std::errc::no_such_process, "follow process", std::to_string(founder.pid));
  }
  return enter_children(founder.pid, founder, before);
}

// What is started from now on enters by itself. Whoever is of a line that was founded below this
// one stays in it.
Result<> BpfLineage::enter_children(pid_t pid, const ProcessId& founder,
                                    const std::optional<ProcessId>& before) {
  for (const pid_t child : children_of(pid)) {
    if (founder_of(child) != before) continue;
    if (auto entered = enter(child, founder); !entered) return entered;
    if (start_ticks_of(child) == 0) {
      const auto key = static_cast<uint32_t>(child);
      bpf_map_delete_elem(map(), &key);
      continue;
    }
    if (auto entered = enter_children(child, founder, before); !entered) return entered;
  }
  return {};
}

std::optional<ProcessId> BpfLineage::founder_of(pid_t pid) const {
  const auto key = static_cast<uint32_t>(pid);
  gs_founder value{};
  if (bpf_map_lookup_elem(map(), &key, &value) != 0) return std::nullopt;
  return ProcessId{static_cast<pid_t>(value.pid), value.start_ticks};
}

std::optional<std::set<ProcessId>> BpfLineage::founders() const {
  std::vector<uint32_t> keys(kMostProcesses);
  std::vector<gs_founder> values(kMostProcesses);
  uint32_t count = kMostProcesses, place = 0;
  // ENOENT says that these were all.
  if (bpf_map_lookup_batch(map(), nullptr, &place, keys.data(), values.data(), &count, nullptr) !=
          0 &&
      errno != ENOENT)
    return std::nullopt;
  std::set<ProcessId> founders;
  for (const gs_founder& value : std::span(values).first(count))
    founders.insert({static_cast<pid_t>(value.pid), value.start_ticks});
  return founders;
}

}  // namespace gpushare
