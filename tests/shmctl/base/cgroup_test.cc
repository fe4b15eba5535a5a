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

}  // namespace
}  // namespace gpushare
