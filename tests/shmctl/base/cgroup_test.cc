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
  EXPECT_EQ(cgroup_path("0::/user.slice/a b.scope\n"), "/user.slice/a b.scope");
  EXPECT_EQ(cgroup_path("4:memory:/m\n1:name=systemd:/x.service\n"), "/x.service");
  EXPECT_EQ(cgroup_path("1:name=systemd:/x.service\n0::/y\n"), "/y");
  EXPECT_EQ(cgroup_path("4:memory:/m"), "");
  EXPECT_EQ(cgroup_path(""), "");
}

}  // namespace
}  // namespace gpushare
