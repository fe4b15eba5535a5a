// SPDX-License-Identifier: Apache-2.0
#include "tools/exporter/workload.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "shmctl/base/cgroup.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

constexpr size_t kUidLength = 36;

bool are_all(std::string_view text, bool (*is_one)(char)) {
  return !text.empty() && std::ranges::all_of(text, is_one);
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }

// "…-pod8c1f….slice" of the systemd driver, in which '_' stands for '-', and "pod8c1f…".
std::optional<std::string> pod_of(std::string_view part) {
  if (part.ends_with(".slice")) part.remove_suffix(6);
  const size_t at = part.rfind("pod");
  if (at == std::string_view::npos || (at > 0 && part[at - 1] != '-')) return std::nullopt;
  std::string uid(part.substr(at + 3));
  std::ranges::replace(uid, '_', '-');
  const auto is_of_uid = [](char c) { return is_hex(c) || c == '-'; };
  if (uid.size() != kUidLength || !are_all(uid, is_of_uid)) return std::nullopt;
  return uid;
}

// The first part of a path that begins with '/', which is taken away.
std::string_view take_part(std::string_view& path) {
  path.remove_prefix(path.empty() ? 0 : 1);
  const std::string_view part = path.substr(0, path.find('/'));
  path.remove_prefix(part.size());
  return part;
}

// "/slurm/…", "/slurm_NODE/…" and "/system.slice/NODE_slurmstepd.scope/…". Below other roots every
// user may make groups of any name.
bool is_slurms(std::string_view path) {
  const std::string_view first = take_part(path);
  return first.starts_with("slurm") ||
         (first == "system.slice" && take_part(path).ends_with("slurmstepd.scope"));
}

// "/kubepods/…", "/kubepods.slice/…", or below the folder of the kubelet's --cgroup-root, which is
// nobody else's: no user's, service's or container's.
bool is_kubelets(std::string_view path) {
  std::string_view part = take_part(path);
  if (part == "user.slice") return false;
  for (; !part.empty(); part = take_part(path)) {
    if (part == "kubepods" || part == "kubepods.slice" || part.ends_with("-kubepods.slice"))
      return true;
    if (part.ends_with(".service") || container_id(part)) return false;
  }
  return false;
}

// As tools/slurm names the tenants of jobs.
std::optional<std::string> job_of_tenant(std::string_view name) {
  constexpr std::string_view kPrefix = "slurm-";
  name.remove_prefix(name.rfind('/') + 1);  // it may be below another
  if (!name.starts_with(kPrefix) || !are_all(name.substr(kPrefix.size()), is_digit))
    return std::nullopt;
  return std::string(name.substr(kPrefix.size()));
}

}  // namespace

Workload workload_of(std::string_view path) {
  Workload workload;
  if (auto container = container_group(path)) workload.container_id = std::move(container->id);
  const bool is_slurm = is_slurms(path), is_kubelet = !is_slurm && is_kubelets(path);
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), part.size() + 1));
    if (is_slurm && workload.slurm_job.empty())
      if (part.starts_with("job_") && are_all(part.substr(4), is_digit))
        workload.slurm_job = part.substr(4);
    if (is_kubelet && workload.pod_uid.empty()) workload.pod_uid = pod_of(part).value_or("");
  }
  return workload;
}

void add_names(Workload& workload, const PodNames& names) {
  const auto pod = names.find(workload.pod_uid);
  if (workload.pod_uid.empty() || pod == names.end()) return;
  workload.name_space = pod->second.name_space;
  workload.pod = pod->second.pod;
  const auto container = pod->second.containers.find(workload.container_id);
  if (container != pod->second.containers.end()) workload.container = container->second;
}

std::vector<Workload> Workloads::of(const PlaneSnapshot& snapshot) {
  std::map<uint32_t, std::string> jobs;  // by tenant
  for (const auto& [slot, tenant] : snapshot.tenants)
    if (const auto job = job_of_tenant(tenant.name)) jobs.emplace(slot, *job);
  std::map<Process, Workload> present;
  std::vector<Workload> result;
  result.reserve(snapshot.processes.size());
  for (const auto& [slot, record] : snapshot.processes) {
    const Process process(record.pid, record.start_ticks);
    auto [at, is_new] = present.try_emplace(process);
    if (is_new) {
      if (const auto known = known_.find(process); known != known_.end()) {
        at->second = known->second;
      } else {
        std::ifstream file(proc_ + "/" + std::to_string(record.pid) + "/cgroup");
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        // The number may be another process's by now.
        const auto stat = read_proc_stat(record.pid, proc_);
        if (stat && stat->start_ticks == record.start_ticks)
          at->second = workload_of(cgroup_path(text));
      }
    }
    result.push_back(at->second);
    if (const auto job = jobs.find(record.tenant); job != jobs.end())
      if (result.back().slurm_job.empty()) result.back().slurm_job = job->second;
  }
  known_ = std::move(present);
  return result;
}

}  // namespace gpushare
