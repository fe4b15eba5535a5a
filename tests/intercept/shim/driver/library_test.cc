// SPDX-License-Identifier: Apache-2.0
// libgpushare.so as a file: what it needs, what it exports, and that hooks.def has the driver's
// types.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>
#include <string>

#include "tests/intercept/shim/driver/abi_real.h"
#include "tests/intercept/shim/shim_rig.h"

namespace gpushare::test {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char part[4096];
  for (size_t count = 0; (count = std::fread(part, 1, sizeof part, pipe)) > 0;)
    text.append(part, count);
  ::pclose(pipe);
  return text;
}

std::string library() { return build_folder() + "/lib/libgpushare.so"; }

TEST(Library, NeedsOnlyLibc) {
  std::istringstream lines(output_of("readelf -dW " + library()));
  std::set<std::string> needed;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line.find("TEXTREL"), std::string::npos);
    EXPECT_EQ(line.find("RPATH"), std::string::npos);
    if (line.find("(NEEDED)") == std::string::npos) continue;
    const size_t begin = line.find('[') + 1;
    const std::string name = line.substr(begin, line.find(']') - begin);
    // The loader is part of libc and of every program.
    if (!name.starts_with("ld-linux")) needed.insert(name);
  }
  EXPECT_EQ(needed, std::set<std::string>{"libc.so.6"});
}

// A program may run with an older libc than the one that this was built with.
TEST(Library, NeedsNoRecentLibc) {
  const std::string text = output_of("readelf -VW " + library());
  std::istringstream words(text);
  bool has_any = false;
  for (std::string word; words >> word;) {
    int minor = 0;
    if (std::sscanf(word.c_str(), "GLIBC_2.%d", &minor) != 1) continue;
    has_any = true;
    EXPECT_LE(minor, 17) << word;
  }
  EXPECT_TRUE(has_any) << text;
}

TEST(Library, ExportsWhatItStandsInForAndNothingElse) {
  std::set<std::string> expected{"dlsym", "dlvsym", "dlopen"};
#define GS_HOOK(kind, base, symbol, since, parameters) expected.insert(#symbol);
#define GS_HOOK_VARIANT GS_HOOK
#include "intercept/shim/driver/hooks.def"
  for (const char* name : {"gpushare_arrive", "gpushare_begin", "gpushare_end", "gpushare_set_slo",
                           "gpushare_expect", "gpushare_read_iterations", "gpushare_read_share"})
    expected.insert(name);
  std::istringstream lines(output_of("nm -D --defined-only " + library()));
  std::set<std::string> exported;
  for (std::string address, type, name; lines >> address >> type >> name;) exported.insert(name);
  EXPECT_EQ(exported, expected);
}

TEST(Hooks, TakeWhatTheDriversFunctionsTake) {
  if (compared_with_api_level() == 0)
    GTEST_SKIP() << "no cudaTypedefs.h of CUDA 13 or later in $CUDA_HOME/include or "
                    "/usr/local/cuda/include at build time";
  EXPECT_GE(compared_with_api_level(), 13000);
}

}  // namespace
}  // namespace gpushare::test
