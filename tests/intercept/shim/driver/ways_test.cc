// SPDX-License-Identifier: Apache-2.0
// Programs (probe.cc) that reach the driver in every way, with the shim preloaded.
#include <gtest/gtest.h>

#include "intercept/shim/driver/kinds.h"
#include "tests/intercept/shim/driver/fake_driver.h"
#include "tests/intercept/shim/shim_rig.h"

namespace gpushare::test {
namespace {

constexpr int kLaunches = 7;

// How many entries of hooks.def are needed by at least one of these features.
int hooked_by(uint32_t features) {
  int count = 0;
#define GS_HOOK(kind, base, symbol, since, parameters) \
  if ((shim::features_that_need(shim::Kind::k##kind) & features) != 0) ++count;
#define GS_HOOK_VARIANT GS_HOOK
#include "intercept/shim/driver/hooks.def"
  return count;
}

std::string owners(int ours) {
  std::string text;
  if (ours < shim::kHookCount)
    text += "libcuda.so.1 " + std::to_string(2 * (shim::kHookCount - ours)) + "\n";
  if (ours > 0) text += "libgpushare.so " + std::to_string(2 * ours) + "\n";
  return text;
}

struct Way {
  const char* program;
  const char* name;
  int launches;  // times kLaunches
};

class Ways : public testing::TestWithParam<Way> {};

TEST_P(Ways, LaunchesAreSeenAndReachTheDriver) {
  ShimRig rig(kShimGate);
  const Way& way = GetParam();
  rig.succeed(way.program, {way.name, std::to_string(kLaunches)});
  EXPECT_EQ(rig.launches_of_all(), static_cast<uint64_t>(kLaunches * way.launches));
}

TEST_P(Ways, WithoutAFeatureNothingIsSeen) {
  ShimRig rig(0);
  const Way& way = GetParam();
  rig.succeed(way.program, {way.name, std::to_string(kLaunches)});
  EXPECT_EQ(rig.launches_of_all(), 0u);
}

TEST_P(Ways, WithoutAnAgentNothingChanges) {
  ShimRig rig(kShimGate);
  rig.die();
  const Way& way = GetParam();
  const Outcome outcome = rig.succeed(way.program, {way.name, std::to_string(kLaunches)});
  EXPECT_EQ(outcome.err, "");
}

INSTANTIATE_TEST_SUITE_P(
    All, Ways,
    testing::Values(Way{"shim_probe_linked", "direct", 1}, Way{"shim_probe_linked", "dlsym", 1},
                    Way{"shim_probe_linked", "lookup", 2}, Way{"shim_probe", "dlsym", 1},
                    Way{"shim_probe", "dlvsym", 1}, Way{"shim_probe", "default", 2},
                    Way{"shim_probe", "lookup", 2}, Way{"shim_probe", "runtime", 1},
                    Way{"shim_probe", "threads", 8}, Way{"shim_probe", "racing", 8},
                    Way{"shim_probe", "dlclose", 1}),
    [](const auto& way) { return std::string(way.param.program) + "_" + way.param.name; });

TEST(Lookup, GivesTheDriversOwnPointersWhereNoFeatureIsOn) {
  ShimRig rig(0);
  EXPECT_EQ(rig.run("shim_probe", {"every"}).out, owners(0));
  rig.die();
  EXPECT_EQ(rig.run("shim_probe", {"every"}).out, owners(0));
}

TEST(Lookup, StandsInForWhatAFeatureNeedsAndNoMore) {
  for (const uint32_t features :
       {uint32_t{kShimGate}, uint32_t{kShimPartitions}, uint32_t{kShimIterations},
        kShimGate | kShimIterations, kShimFeatures}) {
    ShimRig rig(features);
    const Outcome outcome = rig.succeed("shim_probe", {"every"});
    EXPECT_EQ(outcome.out, owners(hooked_by(features)));
  }
}

// For how many entries of hooks.def `is_so` returns true.
template <class IsSo>
uint64_t entries_of(const IsSo& is_so) {
  uint64_t count = 0;
#define GS_HOOK(kind, base, symbol, since, parameters) \
  if (is_so(shim::Kind::k##kind, std::string_view(#symbol))) ++count;
#define GS_HOOK_VARIANT GS_HOOK
#include "intercept/shim/driver/hooks.def"
  return count;
}

bool is_copy_or_fill(std::string_view symbol) {
  return symbol.starts_with("cuMemcpy") || symbol.starts_with("cuMemset");
}
bool is_between_host_and_gpu(std::string_view symbol) {
  for (const char* way : {"HtoD", "DtoH", "HtoA", "AtoH"})
    if (symbol.contains(way)) return true;
  return false;
}

TEST(Launches, AreKernelsGraphsAndCopiesAndFillsButThoseBetweenHostAndGpu) {
  EXPECT_EQ(entries_of([](shim::Kind kind, std::string_view symbol) {
              return is_copy_or_fill(symbol) &&
                     shim::is_launch(kind) == is_between_host_and_gpu(symbol);
            }),
            0u);
  EXPECT_EQ(entries_of([](shim::Kind kind, std::string_view symbol) {
              return is_copy_or_fill(symbol) && !shim::is_launch(kind);
            }),
            2u * 8)
      << "four ways, with a stream and without, each with a variant";
}

TEST(Launches, AreCountedWhateverTheirFunction) {
  ShimRig rig(kShimGate);
  rig.succeed("shim_probe", {"every"});
  EXPECT_EQ(rig.launches_of_all(),
            2 * entries_of([](shim::Kind kind, auto) { return shim::is_launch(kind); }))
      << "by dlsym and by cuGetProcAddress";
}

TEST(Lookup, KnowsVersionsAndLeavesUnknownOnesAlone) {
  ShimRig rig(kShimGate);
  rig.succeed("shim_probe", {"versions"});
}

TEST(Lookup, OfOtherLibrariesIsAsWithoutUs) {
  ShimRig rig(kShimGate);
  rig.succeed("shim_probe", {"ordinary"});
}

TEST(Process, ForkAndExecGetSlotsOfTheirOwn) {
  ShimRig rig(kShimGate);
  const auto program = rig.start("shim_probe", {"fork", std::to_string(kLaunches)});
  const pid_t parent = program->pid();
  success_of(*program);
  const auto launches = rig.launches();
  ASSERT_EQ(launches.size(), 2u);
  for (const auto& [process, count] : launches)
    // The 2 launches of the child before exec() were counted in a page that the one with 3
    // replaced.
    EXPECT_EQ(count, static_cast<uint64_t>(kLaunches * (process.pid == parent ? 2 : 3)));
}

// Otherwise its first streams would not be known, and so be in no order with what moves.
TEST(Process, AChildIsKnownBeforeItsFirstContext) {
  ShimRig rig(kShimGate | kShimPartitions);
  rig.succeed("shim_probe", {"fork-contexts"});
  EXPECT_EQ(rig.launches().size(), 2u);
}

TEST(Process, SignalHandlersMayLaunch) {
  ShimRig rig(kShimGate);
  rig.succeed("shim_probe", {"signal", "100"});
  EXPECT_GE(rig.launches_of_all(), 100u);
}

TEST(Process, HoldsOnePageAndNoDescriptor) {
  ShimRig rig(kShimGate);
  EXPECT_EQ(rig.run("shim_probe", {"traces"}).out, "pages 1 descriptors 0\n");
  rig.die();
  EXPECT_EQ(rig.run("shim_probe", {"traces"}).out, "pages 0 descriptors 0\n");
}

}  // namespace
}  // namespace gpushare::test
