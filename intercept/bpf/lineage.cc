// SPDX-License-Identifier: Apache-2.0
#include "intercept/bpf/lineage.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "intercept/bpf/founder.h"
#include "intercept/bpf/lineage.skel.h"
#include "intercept/bpf/tracepoint.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

constexpr const char* kLoad = "follow forks by eBPF";
constexpr const char* kMap = "/descendants";  // in the folder

std::unexpected<Error> not_loaded(int code) {
  return std::unexpected(
      Error{std::error_code(code, std::generic_category()), kLoad,
            code == EPERM ? "needs root (CAP_BPF, CAP_PERFMON) and a kernel that is not locked down"
                          : "needs Linux 5.15 or later with BTF"});
}

// Whether nobody else can put anything into the folder, which is made if it is missing.
bool is_ours(const std::string& folder) {
  struct statfs system{};
  struct stat status{};
  const std::string above = std::filesystem::path(folder).parent_path();
  if (::statfs(above.c_str(), &system) != 0 || system.f_type != BPF_FS_MAGIC) return false;
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
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

Result<std::unique_ptr<BpfLineage>> BpfLineage::start(const std::string& folder) {
  libbpf_set_print(nullptr);
  std::unique_ptr<BpfLineage> self(new BpfLineage(is_ours(folder) ? folder : ""));
  auto loaded = self->load();
  if (!loaded && !self->folder_.empty()) {
    // What is pinned there may be of another version.
    std::filesystem::remove(self->folder_ + kMap);
    loaded = self->load();
  }
  if (loaded) loaded = self->attach();
  if (!loaded) return std::unexpected(loaded.error());
  return self;
}

std::string BpfLineage::folder_of(std::string region) {
  region.erase(0, region.find_first_not_of('/'));
  std::ranges::replace_if(region, [](char c) { return c == '/' || c == '.'; }, '-');
  return "/sys/fs/bpf/" + region;
}

Result<> BpfLineage::load() {
  struct stat pid_namespace{};
  if (::stat("/proc/self/ns/pid", &pid_namespace) != 0)
    return errno_error(kLoad, "/proc/self/ns/pid");
  skeleton_.reset(lineage_skel__open());
  if (skeleton_ == nullptr) return not_loaded(errno);
  skeleton_->rodata->observer_pid_ns = static_cast<uint32_t>(pid_namespace.st_ino);
  bpf_map__set_max_entries(skeleton_->maps.descendants, kMostProcesses);
  if (!folder_.empty())
    bpf_map__set_pin_path(skeleton_->maps.descendants, (folder_ + kMap).c_str());
  if (const int error = lineage_skel__load(skeleton_.get()); error != 0) return not_loaded(-error);
  return {};
}

// The exit first: what enters the map must be seen to leave it. What an earlier object has attached
// does the same until it goes, so that there is no gap.
Result<> BpfLineage::attach() {
  const Attachment attachments[] = {
      {skeleton_->progs.lineage_exit, "sched_process_exit", skeleton_->links.lineage_exit},
      {skeleton_->progs.lineage_fork, "sched_process_fork", skeleton_->links.lineage_fork},
  };
  for (const auto& [program, tracepoint, link] : attachments) {
    link = bpf_program__attach_raw_tracepoint(program, tracepoint);
    if (link == nullptr) return not_loaded(errno);
    if (folder_.empty()) continue;
    const std::string pin = folder_ + "/" + tracepoint;
    ::unlink(pin.c_str());
    bpf_link__pin(link, pin.c_str());
  }
  return {};
}

BpfLineage::~BpfLineage() {
  if (skeleton_ == nullptr || folder_.empty()) return;
  const auto living = founders();
  std::error_code left_behind;
  if (living && living->empty()) std::filesystem::remove_all(folder_, left_behind);
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
