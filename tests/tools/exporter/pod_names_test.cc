// SPDX-License-Identifier: Apache-2.0
#include "tools/exporter/pod_names.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/support/temp_dir.h"

namespace gpushare {
namespace {

const PodNames kTwo = {{"uid-1", {"lab", "train-0", {{std::string(64, 'a'), "main"}}}},
                       {"uid-2", {"lab", "infer", {}}}};

TEST(PodNames, AreReadAsTheyWereWritten) {
  const auto read = parse_pod_names(pod_names_text(kTwo));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(*read, kTwo);
}

// Bytes that are no text are those of a name that an API server never gave.
TEST(PodNames, AreDefinedForAnyText) {
  EXPECT_TRUE(parse_pod_names(pod_names_text({{"\xff", {"\xfe", "\n\"", {}}}})));
  for (const char* text : {"", "[]", "{}", "{\"version\": 2, \"pods\": {}}", "{\"version\": 1}",
                           "{\"version\": 1, \"pods\": []}", "{\"version\": {}, \"pods\": {}}"})
    EXPECT_FALSE(parse_pod_names(text)) << text;
  const auto odd = parse_pod_names(
      "{\"version\": 1, \"pods\": {\"a\": 1, \"b\": {\"pod\": 7, \"containers\": {\"c\": []}}}}");
  ASSERT_TRUE(odd);
  EXPECT_EQ(*odd, (PodNames{{"b", {}}}));
}

class PodNamesFile : public ::testing::Test {
 protected:
  std::string error() {
    const auto names = reader_.read();
    return names ? "" : names.error().message();
  }
  size_t count() {
    const auto names = reader_.read();
    return names ? (*names)->size() : 0;
  }

  const TempDir dir_;
  const std::string path_ = dir_.at("pods.json");
  PodNamesReader reader_{path_};
};

TEST_F(PodNamesFile, IsReadAgainWhenItIsAnother) {
  EXPECT_EQ(count(), 0u) << "there is none, which is no error";
  EXPECT_EQ(error(), "");
  dir_.write("pods.json", pod_names_text(kTwo));
  EXPECT_EQ(count(), 2u);
  dir_.write("next", pod_names_text({{"uid-3", {}}}));
  ASSERT_EQ(::rename(dir_.at("next").c_str(), path_.c_str()), 0);
  EXPECT_EQ(count(), 1u);
  ::unlink(path_.c_str());
  EXPECT_EQ(count(), 0u);
}

TEST_F(PodNamesFile, OfAnybodyIsNotBelieved) {
  dir_.write("pods.json", pod_names_text(kTwo));
  ::chmod(path_.c_str(), 0666);
  EXPECT_TRUE(error().contains("others than its owner may write it")) << error();
  EXPECT_EQ(error(), "") << "it is said once";
  EXPECT_EQ(count(), 0u);
  ::chmod(path_.c_str(), 0644);
  EXPECT_EQ(count(), 2u);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path_.c_str(), 12345, 12345), 0);
    EXPECT_TRUE(error().contains("it does not belong to root"));
  }
}

TEST_F(PodNamesFile, ThatIsNoneOrBrokenIsSaidOnce) {
  dir_.write("pods.json", "{\"version\": 1, \"po");
  EXPECT_TRUE(error().contains("it is no JSON object")) << error();
  EXPECT_EQ(error(), "");
  ::unlink(path_.c_str());
  ASSERT_EQ(::symlink("/etc/passwd", path_.c_str()), 0);
  EXPECT_NE(error(), "") << "a link leads to a file that somebody else has written";
  EXPECT_EQ(error(), "");
  ::unlink(path_.c_str());
  ASSERT_EQ(::mkfifo(path_.c_str(), 0644), 0);
  EXPECT_TRUE(error().contains("it is no file")) << "and nobody waits for it";
}

}  // namespace
}  // namespace gpushare
