// SPDX-License-Identifier: Apache-2.0
#include "sched/daemon/gpus/predecessors.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "shmctl/base/last_threads.h"
#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

TEST(Predecessors, AreWrittenAndReadAgain) {
  const std::vector<ProcessId> all{{4711, 123456}, {4712, 0}};
  const std::string text = Predecessors(all).text();
  EXPECT_EQ(text, "4711:123456,4712:0");
  EXPECT_EQ(Predecessors::parse(text), all);
  EXPECT_EQ(Predecessors({}).text(), "");
  EXPECT_EQ(Predecessors::parse(""), std::vector<ProcessId>{});
  for (const char* wrong : {"4711", "4711:", "x:1", "4711:1;4712:1", "0:1", "-4:1", ":1", "1:2 "})
    EXPECT_EQ(Predecessors::parse(wrong), std::nullopt) << wrong;
}

// Each agent is told all of them on its command line.
TEST(Predecessors, AreForgottenWhenNothingIsLeftOfThem) {
  const ProcessId self{::getpid(), start_ticks_of(::getpid())};
  Predecessors before({{self.pid, self.start_ticks + 1}, self});
  before.add({self.pid, self.start_ticks + 2});
  EXPECT_EQ(before.text(),
            fmt::format("{}:{},{}:{}", self.pid, self.start_ticks, self.pid, self.start_ticks + 2));
}

TEST(Predecessors, HaveLeftAGpuThatNoThreadOfTheirsAsks) {
  const ProcessId self{::getpid(), start_ticks_of(::getpid())};
  Predecessors before({{self.pid, self.start_ticks + 1}});  // that one has ended
  std::thread asking([&] {
    name_gpu_thread(1);
    EXPECT_TRUE(before.have_left(1));
    before.add(self);
    const Result<> left = before.have_left(1);
    ASSERT_FALSE(left);
    EXPECT_TRUE(left.error().message().contains(std::to_string(self.pid)));
    EXPECT_TRUE(before.have_left(0));
  });
  asking.join();
  EXPECT_TRUE(before.have_left(1));
}

}  // namespace
}  // namespace gpushare
