// SPDX-License-Identifier: Apache-2.0
// `gpushare report` as a user starts it, on a history of our own.
#include <gtest/gtest.h>

#include <ctime>
#include <stdexcept>

#include "shmctl/usage/store.h"
#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_dir.h"

namespace gpushare {
namespace {

class GpushareReport : public testing::Test {
 protected:
  GpushareReport() {
    auto store = UsageStore::open({.path = dir_.at("usage.db")});
    if (!store) throw std::runtime_error(store.error().message());
    UsageWrite write;
    write.start = (std::time(nullptr) - WallSeconds{2} * 86'400) / 10 * 10;
    write.sample.watched_ms = 10'000;
    write.sample.amounts[{.tenant = "research", .uid = 1000}] = {.used_ms = 4000};
    write.gpus[0] = {.uuid = "GPU-1", .name = "H200"};
    EXPECT_TRUE(store->write(write));
  }
  ToolResult report(std::vector<std::string> words, const std::string& file = "usage.db") const {
    words.insert(words.begin(), {"report", "--file", file.contains('/') ? file : dir_.at(file)});
    return run_tool("gpushare", words);
  }

  TempDir dir_;
};

TEST_F(GpushareReport, AnUnknownTenantOrGpuIsWrongUsageThatNamesWhatThereIs) {
  const ToolResult tenant = report({"-t", "reserch"});
  EXPECT_EQ(tenant.exit_code, 2);
  EXPECT_EQ(tenant.out, "");
  EXPECT_TRUE(tenant.err.contains("did you mean 'research'? it has: research")) << tenant.err;
  const ToolResult gpu = report({"--gpu", "9", "--json"});
  EXPECT_EQ(gpu.exit_code, 2);
  EXPECT_EQ(gpu.out, "");
  EXPECT_TRUE(gpu.err.contains("no GPU 9; it has: 0")) << gpu.err;
}

TEST_F(GpushareReport, ATenantThatWasOnlyThereEarlierIsKnown) {
  for (const char* since : {"1h", "7d"}) {
    const ToolResult result = report({"-t", "research", "--gpu", "0", "--since", since});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out.contains("research"), since == std::string("7d")) << result.out;
  }
}

TEST_F(GpushareReport, AFileThatIsNoHistoryIsNamed) {
  dir_.write("empty.db", "");
  const ToolResult empty = report({}, "empty.db");
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_EQ(empty.out, "");
  EXPECT_TRUE(empty.err.contains(dir_.at("empty.db") + " is empty")) << empty.err;
  const ToolResult other = report({}, "/etc/passwd");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_TRUE(other.err.contains("/etc/passwd is no history of gpushare")) << other.err;
  EXPECT_FALSE(other.err.contains("Bad message")) << other.err;
}

}  // namespace
}  // namespace gpushare
