// SPDX-License-Identifier: Apache-2.0
// [mps] in the configuration, and what `gpushare doctor` is told.
#include <gtest/gtest.h>

#include <algorithm>

#include "sched/control/diagnosis.h"
#include "sched/tenants/config.h"

namespace gpushare {
namespace {

using Severity = Finding::Severity;

std::string refused(std::string_view text) {
  const auto config = parse_config(text, "g.toml");
  return config ? "taken" : config.error().front().message();
}

TEST(MpsConfig, IsOursForAllUsersUnlessItSaysOtherwise) {
  EXPECT_EQ(parse_config("", "g.toml")->mps, MpsConfig{});
  EXPECT_EQ(parse_config("[mps]\nrun = \"auto\"\nusers = \"all\"", "g.toml")->mps, MpsConfig{});
  const auto other =
      parse_config("[mps]\nrun = \"off\"\nusers = \"one\"\nprogram = \"/opt/mps\"", "g.toml");
  ASSERT_TRUE(other);
  EXPECT_EQ(other->mps,
            (MpsConfig{.is_ours = false, .has_all_users = false, .program = "/opt/mps"}));
}

TEST(MpsConfig, MistakesAreNamed) {
  EXPECT_EQ(refused("[mps]\nrun = true"), "g.toml:2:7: mps.run: must be \"auto\" or \"off\"");
  EXPECT_EQ(refused("[mps]\nusers = \"some\""),
            "g.toml:2:9: mps.users: must be \"all\" or \"one\"");
  EXPECT_EQ(refused("[mps]\nprogram = \"\""),
            "g.toml:2:11: mps.program: must be a path, or a name in $PATH");
  EXPECT_EQ(refused("[mps]\nuser = \"all\""),
            "g.toml:2:1: mps.user: unknown key; did you mean 'users'?");
}

class MpsDiagnosisTest : public ::testing::Test {
 protected:
  std::vector<Finding> found() const {
    Symptoms symptoms;
    symptoms.mps = &status_;
    std::vector<Finding> findings = diagnose(symptoms);
    std::erase_if(findings, [](const Finding& finding) { return finding.check != "spatial MPS"; });
    return findings;
  }
  MpsStatus status_{.state = MpsState::kRunning,
                    .pid = 7,
                    .pipe_directory = "/run/gpushare/mps",
                    .clients = 2,
                    .faults = 0,
                    .error = "",
                    .last_fault = ""};
};

TEST_F(MpsDiagnosisTest, NothingIsSaidWhereNoneIsWanted) {
  status_.state = MpsState::kOff;
  EXPECT_TRUE(found().empty());
}

TEST_F(MpsDiagnosisTest, SaysPidAndClientsAndTheLastFault) {
  ASSERT_EQ(found().size(), 1u);
  EXPECT_EQ(found()[0].severity, Severity::kOk);
  EXPECT_EQ(found()[0].detail, "control daemon 7, 2 clients");
  status_.faults = 1;
  status_.last_fault = "tenant a: spin (pid 3)";
  EXPECT_EQ(found()[0].detail,
            "control daemon 7, 2 clients; 1 faults, the last ended tenant a: spin (pid 3)");
}

TEST_F(MpsDiagnosisTest, WarnsWithWhatToDo) {
  status_.error = "ask MPS: timed out";
  EXPECT_EQ(found()[0].detail, "ask MPS: timed out");
  EXPECT_EQ(found()[0].fix, "see control.log in /run/gpushare/mps-log");
  status_.error.clear();
  for (const MpsState state : {MpsState::kMissing, MpsState::kOther, MpsState::kStarting}) {
    status_.state = state;
    EXPECT_EQ(found()[0].severity, Severity::kWarning);
  }
}

}  // namespace
}  // namespace gpushare
