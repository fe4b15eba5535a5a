// SPDX-License-Identifier: Apache-2.0
// Workload: the job, pod or container that a process belongs to, by the path of its cgroup, so that
// metrics can be joined with those of the cluster.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "shmctl/plane/snapshot.h"
#include "tools/exporter/pod_names.h"

namespace gpushare {

struct Workload {
  std::string slurm_job;     // "4711"
  std::string pod_uid;       // of Kubernetes, with dashes
  std::string container_id;  // of Docker, containerd, CRI-O and podman: 64 hexadecimal digits
  // Kubernetes' names of these two; empty where they are not known.
  std::string name_space{}, pod{}, container{};

  bool is_known() const { return !slurm_job.empty() || !pod_uid.empty() || !container_id.empty(); }
  auto operator<=>(const Workload&) const = default;
};

// Pure; defined for any text. Paths of both versions of cgroups are known: Slurm's
// /system.slice/slurmstepd.scope/job_N/... and /slurm/uid_N/job_N/..., the kubelet's by either of
// its drivers, and scopes and folders of container engines. Jobs and pods are taken from groups
// only that root makes, and the outermost counts: what a user makes in a slice of its own is none.
// Which container it is, is the user's word there.
Workload workload_of(std::string_view cgroup_path);

// Fills in what Kubernetes calls the pod and the container. Pure.
void add_names(Workload& workload, const PodNames& names);

// Looks up the workloads of processes in /proc, each process once. A process that this user may not
// see has none; but one in the tenant "slurm-N" that Slurm's plugin has made is of the job N, also
// where Slurm makes no control groups (proctrack/linuxproc). Not thread-safe.
class Workloads {
 public:
  explicit Workloads(std::string proc = "/proc") : proc_(std::move(proc)) {}

  // The workload of each process of the snapshot, in its order. What is no longer there is
  // forgotten.
  std::vector<Workload> of(const PlaneSnapshot& snapshot);

 private:
  using Process = std::pair<int32_t, uint64_t>;  // pid and start

  std::string proc_;
  std::map<Process, Workload> known_;
};

}  // namespace gpushare
