// SPDX-License-Identifier: Apache-2.0
// gpushare.h and gpushare.py, with the library and without, with an agent and without.
#include <gtest/gtest.h>

#include "intercept/api/gpushare.h"
#include "tests/intercept/shim/shim_rig.h"

namespace gpushare::test {
namespace {

constexpr const char* kNothing =
    "unbegun 1 null 1 phase 1 slo 1 expect 1\n"
    "arrive 1 begin 1 end 1 errno 77\n"
    "parent 1 source 0 begun 0 ended 0 phase 0 slo 0, 1  0 0 0, 1\n"
    "child 1 source 0 begun 0 ended 0 phase 0 slo 0, 1  0 0 0, 1\n"
    "parent 1 source 0 begun 0 ended 0 phase 0 slo 0, 1  0 0 0, 1\n";

constexpr const char* kAll =
    "unbegun 2 null 2 phase 2 slo 0 expect 0\n"
    "arrive 0 begin 0 end 0 errno 77\n"
    "parent 0 source 2 begun 7 ended 7 phase 2 slo 2000, 0 0000:3b:00.0 0 0 0, 2\n"
    "child 0 source 2 begun 1 ended 0 phase 1 slo 0, 0 0000:3b:00.0 0 0 0, 2\n"
    "parent 0 source 2 begun 7 ended 7 phase 2 slo 2000, 0 0000:3b:00.0 0 0 0, 2\n";

const std::vector<ShimRequest::Gpu> kGpus{{.pci = "0000:3b:00.0", .groups = 0}};

class Api : public testing::TestWithParam<const char*> {};

TEST_P(Api, SaysSoWhereThereIsNoLibrary) {
  EXPECT_EQ(outcome_of(*started({build_folder() + "/bin/tests/" + GetParam(), "7"}, {})).out,
            kNothing);
}

TEST_P(Api, SaysSoWhereThereIsNoAgent) {
  ShimRig rig(kShimIterations, kGpus);
  rig.die();
  EXPECT_EQ(rig.run(GetParam(), {"7"}).out, kNothing);
}

TEST_P(Api, SaysSoWhereNobodyWantsToKnow) {
  ShimRig rig(kShimGate);
  const std::string text = rig.run(GetParam(), {"7"}).out;
  EXPECT_NE(text.find("begin 1 end 1"), std::string::npos) << text;
}

TEST_P(Api, TellsTheAgentAndTheProgram) {
  ShimRig rig(kShimIterations, kGpus);
  const Outcome outcome = rig.run(GetParam(), {"7"});
  EXPECT_EQ(outcome.out, kAll) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(Languages, Api, testing::Values("api_probe_c", "api_probe_cpp"),
                         [](const auto& each) { return std::string(each.param); });

// Before it looks for the driver: what the agent wants of it is not lost.
TEST(ApiOf, AProgramThatAnnouncesFirstGetsItsPartitionsAllTheSame) {
  ShimRig rig(kShimPartitions | kShimIterations, kGpus);
  rig.succeed("shim_probe", {"announced", "5"});
}

TEST(ApiOf, AHeldProgramsChildrenAreFree) {
  ShimRig rig(kShimIterations);
  const auto program = rig.start("shim_probe", {"held", "1000000"});
  ASSERT_TRUE(eventually([&] { return rig.launches().size() > 2; }));
  ASSERT_TRUE(
      rig.with_slot(program->pid(), [](ShimSlot& slot) { ShimHost::set_run_until(slot, 1); }));
  uint64_t begun = 0;
  const auto is_held = [&] {
    bool is_so = false;
    rig.with_slot(program->pid(), [&](ShimSlot& slot) {
      is_so = slot.iterations.waiting.load() == 1;
      begun = slot.iterations.begun.load();
    });
    return is_so;
  };
  ASSERT_TRUE(eventually(is_held));
  const uint64_t held = begun;
  const std::size_t before = rig.launches().size();
  EXPECT_TRUE(eventually([&] { return rig.launches().size() > before + 3; }))
      << "each has a slot of its own";
  EXPECT_TRUE(is_held());
  EXPECT_EQ(begun, held);
  EXPECT_FALSE(program->has_ended()) << "a child was held, or failed";
}

std::string python(const std::string& code, std::vector<std::string> environment) {
  environment.push_back("PYTHONPATH=" + build_folder() + "/lib/python");
  environment.push_back("PATH=/usr/local/bin:/usr/bin:/bin");
  const Outcome outcome =
      success_of(*started({"/usr/bin/env", "python3", "-c", code}, environment));
  return outcome.out;
}

constexpr const char* kPythonProgram = R"(
import gpushare
print(gpushare.set_slo(1500), gpushare.is_attached(), gpushare.expect(80))
for _ in range(5):
    arrived = gpushare.arrive()
    with gpushare.iteration(phase="decode", arrived=arrived) as one:
        pass
try:
    gpushare.iteration(phase="dance")
except ValueError as error:
    print("no dance")
known = gpushare.iterations()
print(known and (known.source, known.phase, known.begun, known.ended, known.slo_us))
print(gpushare.share(), gpushare.share(9))
)";

bool has_python() { return std::system("python3 -c pass >/dev/null 2>&1") == 0; }

TEST(Python, WorksWithoutTheLibrary) {
  if (!has_python()) GTEST_SKIP() << "no python3";
  EXPECT_EQ(python(kPythonProgram, {}), "False False False\nno dance\nNone\nNone None\n");
}

TEST(Python, TellsTheAgentAndTheProgram) {
  if (!has_python()) GTEST_SKIP() << "no python3";
  ShimRig rig(kShimIterations, kGpus);
  EXPECT_EQ(python(kPythonProgram, rig.environment()),
            "True True True\nno dance\n('announced', 'decode', 5, 5, 1500)\n"
            "Share(gpu='0000:3b:00.0', sms=0, sms_entitled=0, sms_in_use=0) None\n");
}

// A test program has no library either.
TEST(Header, IsFineInCxx) {
  gpushare_iteration one = GPUSHARE_ITERATION;
  EXPECT_EQ(gpushare_begin(&one, GPUSHARE_UNKNOWN), GPUSHARE_NOT_ATTACHED);
  EXPECT_EQ(gpushare_end(&one), GPUSHARE_NOT_ATTACHED);
}

}  // namespace
}  // namespace gpushare::test
