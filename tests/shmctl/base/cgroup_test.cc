// SPDX-License-Identifier: Apache-2.0
#include "shmctl/base/cgroup.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

TEST(Cgroup, TheRootOfVersionTwoIsFoundAmongTheMounts) {
  EXPECT_EQ(cgroup2_root("25 30 0:23 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"),
            "/sys/fs/cgroup");
  EXPECT_EQ(cgroup2_root("33 24 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                         "41 24 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"),
            "/sys/fs/cgroup/unified")
      << "beside version 1";
  for (const char* none :
       {"", "1 2 3", "25 30 0:23 / /mnt rw -", "25 30 0:23 /inner /mnt rw - cgroup2 none rw\n",
        "25 30 0:23 / /cgroup2 rw - ext4 cgroup2 rw\n"})
    EXPECT_EQ(cgroup2_root(none), std::nullopt) << none;
}

TEST(Cgroup, ThePathIsThatOfVersionTwoOrOfSystemd) {
  const std::pair<const char*, const char*> rows[] = {
      {"0::/user.slice/a b.scope\n", "/user.slice/a b.scope"},
      {"4:memory:/m\n1:name=systemd:/x.service\n", "/x.service"},
      {"1:name=systemd:/x.service\n0::/y\n", "/y"},
      {"4:memory:/m", ""},
      {"", ""}};
  for (const auto& [text, path] : rows) EXPECT_EQ(cgroup_path(text), path) << text;
}

TEST(Cgroup, OfAContainerIsTheOutermostWithAnId) {
  const std::string id(64, 'a'), other(64, 'b');
  struct Row {
    const char* description;
    std::string path, above, name;
  };
  const Row rows[] = {
      {"Docker, systemd", "/system.slice/docker-" + id + ".scope", "/system.slice",
       "docker-" + id + ".scope"},
      {"Docker, cgroupfs", "/docker/" + id, "/docker", id},
      {"below a parent of the user's choice", "/team_a.slice/" + id, "/team_a.slice", id},
      {"at the root", "/" + id, "", id},
      {"podman, systemd", "/machine.slice/libpod-" + id + ".scope/container", "/machine.slice",
       "libpod-" + id + ".scope"},
      {"podman, cgroupfs", "/libpod_parent/libpod-" + id, "/libpod_parent", "libpod-" + id},
      {"podman, in a pod", "/libpod_parent/" + other + "/libpod-" + id, "/libpod_parent/" + other,
       "libpod-" + id},
      {"podman, in a pod, systemd",
       "/machine.slice/machine-libpod_pod_" + other + ".slice/libpod-" + id + ".scope",
       "/machine.slice/machine-libpod_pod_" + other + ".slice", "libpod-" + id + ".scope"},
      {"podman in a service of systemd", "/system.slice/a.service/libpod-payload-" + id,
       "/system.slice/a.service", "libpod-payload-" + id},
      {"a container in it", "/docker/" + id + "/docker/" + other, "/docker", id},
      {"the kubelet's", "/kubepods/burstable/pod1/" + id, "/kubepods/burstable/pod1", id},
  };
  for (const Row& row : rows) {
    const auto group = container_group(row.path);
    ASSERT_TRUE(group) << row.description;
    EXPECT_EQ(group->id, id) << row.description;
    EXPECT_EQ(group->above, row.above) << row.description;
    EXPECT_EQ(group->name, row.name) << row.description;
  }
  for (const std::string& none :
       {std::string(), std::string("/"), "/docker/" + id.substr(1), "/docker/" + id + "a",
        "/docker/" + std::string(64, 'A'), "/a/" + id + ".slice", "/libpod_parent/" + id})
    EXPECT_FALSE(container_group(none)) << none;
}

}  // namespace
}  // namespace gpushare
