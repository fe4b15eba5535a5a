// SPDX-License-Identifier: Apache-2.0
#include "tools/exporter/workload.h"

#include <gtest/gtest.h>

#include "tests/tools/support/temp_dir.h"

namespace gpushare {
namespace {

const std::string kUid = "8c1f7a52-0d3b-4e6a-9f21-5b7c3d2e1f00";
const std::string kUnderscored = "8c1f7a52_0d3b_4e6a_9f21_5b7c3d2e1f00";
const std::string kContainer(64, 'a');

TEST(Workload, IsReadFromThePathsThatEnginesMake) {
  struct Row {
    const char* description;
    std::string path;
    Workload expected;
  };
  const Row table[] = {
      {"nothing", "", {}},
      {"the root", "/", {}},
      {"a service", "/system.slice/ssh.service", {}},
      {"Slurm, v2", "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", {"4711", "", ""}},
      {"Slurm, v1", "/slurm/uid_1000/job_42/step_batch", {"42", "", ""}},
      {"no job of Slurm's", "/user.slice/job_42", {}},
      {"Slurm, v2, of several slurmd",
       "/system.slice/gpu1_slurmstepd.scope/job_3/step_0",
       {"3", "", ""}},
      {"Slurm, v1, of several slurmd", "/slurm_gpu1/uid_1000/job_4", {"4", "", ""}},
      {"what a user calls Slurm's",
       "/user.slice/user-1000.slice/user@1000.service/slurm/uid_0/job_42",
       {}},
      {"nor this",
       "/user.slice/user-1000.slice/user@1000.service/system.slice/slurmstepd.scope/job_42",
       {}},
      {"a job in a job", "/slurm/uid_1000/job_42/step_0/slurm/job_1", {"42", "", ""}},
      {"what a user calls a pod",
       "/user.slice/user-1000.slice/user@1000.service/pod" + kUnderscored + ".slice",
       {}},
      {"nor below this",
       "/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod" + kUnderscored +
           ".slice",
       {}},
      {"nor in a service", "/system.slice/a.service/kubepods/pod" + kUid, {}},
      {"nor in a container",
       "/docker/" + kContainer + "/kubepods/pod" + kUid,
       {"", "", kContainer}},
      {"nor in a job", "/slurm/uid_1000/job_42/kubepods/pod" + kUid, {"42", "", ""}},
      {"a pod in a pod",
       "/kubepods/burstable/pod" + kUid + "/kubepods/pod00000000-0d3b-4e6a-9f21-5b7c3d2e1f00",
       {"", kUid, ""}},
      {"kubelet below a root of its own",
       "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + kUnderscored + ".slice",
       {"", kUid, ""}},
      {"no number", "/slurm/uid_1000/job_x", {}},
      {"kubelet, systemd driver",
       "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + kUnderscored +
           ".slice/cri-containerd-" + kContainer + ".scope",
       {"", kUid, kContainer}},
      {"kubelet, cgroupfs driver",
       "/kubepods/burstable/pod" + kUid + "/" + kContainer,
       {"", kUid, kContainer}},
      {"guaranteed", "/kubepods.slice/kubepods-pod" + kUnderscored + ".slice", {"", kUid, ""}},
      {"no pod", "/kubepods/burstable/podium", {}},
      {"Docker, systemd", "/system.slice/docker-" + kContainer + ".scope", {"", "", kContainer}},
      {"Docker, cgroupfs", "/docker/" + kContainer, {"", "", kContainer}},
      {"podman",
       "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + kContainer + ".scope",
       {"", "", kContainer}},
      {"an id that is too short", "/docker/" + std::string(63, 'a'), {}},
  };
  for (const Row& row : table) EXPECT_EQ(workload_of(row.path), row.expected) << row.description;
}

TEST(Workloads, AreThoseOfTheProcessNotOfItsNumber) {
  const TempDir proc;
  const auto stat = [](const char* start) {
    std::string text = "7 (a) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 ";
    return text + start + " 0 0\n";
  };
  proc.write("7/stat", stat("500"));
  proc.write("7/cgroup", "0::/slurm/uid_0/job_9\n");
  PlaneSnapshot snapshot;
  ProcessRecord process;
  process.pid = 7;
  process.start_ticks = 500;
  snapshot.processes.push_back({.slot = 0, .record = process});
  process.start_ticks = 400;
  snapshot.processes.push_back({.slot = 1, .record = process});
  Workloads workloads(proc.path());
  const auto seen = workloads.of(snapshot);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].slurm_job, "9");
  EXPECT_FALSE(seen[1].is_known()) << "another process had this number before";
  proc.write("7/cgroup", "0::/slurm/uid_0/job_10\n");
  EXPECT_EQ(workloads.of(snapshot)[0].slurm_job, "9") << "it is looked up once";
}

TEST(Workloads, OfSlurmsTenantsAreOfTheirJobs) {
  const TempDir proc;
  PlaneSnapshot snapshot;
  const char* names[] = {"slurm-4711", "slurm-", "slurm-x1", "lab"};
  for (uint32_t slot = 0; const char* name : names) {
    TenantRecord tenant;
    std::snprintf(tenant.name, sizeof tenant.name, "%s", name);
    snapshot.tenants.push_back({.slot = slot, .record = tenant});
    ProcessRecord process;
    process.pid = static_cast<int32_t>(10 + slot);
    process.tenant = slot++;
    snapshot.processes.push_back({.slot = slot, .record = process});
  }
  const std::string start = " (a) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0\n";
  proc.write("10/stat", "10" + start);
  proc.write("10/cgroup", "0::/user.slice\n");  // proctrack/linuxproc
  std::vector<std::string> jobs;
  for (const Workload& workload : Workloads(proc.path()).of(snapshot))
    jobs.push_back(workload.slurm_job);
  EXPECT_EQ(jobs, (std::vector<std::string>{"4711", "", "", ""}));
}

TEST(Workload, IsCalledWhatKubernetesCallsIt) {
  const PodNames names = {{kUid, {"lab", "train-0", {{kContainer, "main"}}}}};
  Workload known{"", kUid, kContainer};
  add_names(known, names);
  EXPECT_EQ(known, (Workload{"", kUid, kContainer, "lab", "train-0", "main"}));
  Workload new_container{"", kUid, std::string(64, 'b')};
  add_names(new_container, names);
  EXPECT_EQ(new_container.pod + "/" + new_container.container, "train-0/");
  Workload another{"7", "", kContainer};
  add_names(another, names);
  EXPECT_EQ(another.pod, "") << "no pod's";
}

}  // namespace
}  // namespace gpushare
