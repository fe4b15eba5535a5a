// SPDX-License-Identifier: Apache-2.0
#include "sched/control/diagnosis.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sched/support/scheduler_rig.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using Severity = Finding::Severity;

const Finding& of(const std::vector<Finding>& findings, const std::string& check) {
  return *std::ranges::find(findings, check, &Finding::check);
}

class DiagnosisTest : public ::testing::Test {
 protected:
  DiagnosisTest() { rig_.start(); }
  std::vector<Finding> diagnose() {
    symptoms_.state = &rig_.scheduler->state();
    return gpushare::diagnose(symptoms_);
  }

  test::SchedulerRig rig_;
  Symptoms symptoms_{.gpu = &rig_.gpu,
                     .no_gpu_reason = "",
                     .observer = &rig_.observer,
                     .no_observer_reason = "",
                     .state = nullptr,
                     .config_error = "",
                     .config_path = "gpushare.toml",
                     .has_supervisor = true};
};

TEST_F(DiagnosisTest, AllIsWell) {
  for (const Finding& finding : diagnose()) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.check;
    EXPECT_EQ(finding.fix, "") << finding.check;
  }
}

TEST_F(DiagnosisTest, EveryTroubleIsNamed) {
  rig_.add_busy("capped", {{"max", "10%"}});
  rig_.gpu.refuse(rig_.programs[0]->process.pid);
  rig_.observer.lose_pending();
  rig_.run_for(1s);
  symptoms_.config_error = "gpushare.toml:3: no";
  symptoms_.has_supervisor = false;
  const auto findings = diagnose();
  EXPECT_EQ(of(findings, "observer").severity, Severity::kWarning);
  EXPECT_EQ(of(findings, "process").severity, Severity::kWarning);
  EXPECT_EQ(of(findings, "configuration").severity, Severity::kFail);
  EXPECT_EQ(of(findings, "supervisor").severity, Severity::kWarning);
  symptoms_.observer = nullptr;
  symptoms_.no_observer_reason = "no BTF";
  EXPECT_NE(of(diagnose(), "observer").detail.find("no BTF"), std::string::npos);
}

TEST_F(DiagnosisTest, SaysWhoSeesProgramsAndWhatTheModuleIsGoodFor) {
  symptoms_.observer_name = "the eBPF probe";
  EXPECT_EQ(of(diagnose(), "observer").detail, "the eBPF probe: nothing was lost");
  EXPECT_EQ(of(diagnose(), "kernel module").severity, Severity::kOk);
  symptoms_.has_module = true;
  EXPECT_EQ(of(diagnose(), "kernel module").severity, Severity::kOk);
  symptoms_.module_problem = "it is observing only: no such function (-2)";
  const Finding problem = of(diagnose(), "kernel module");
  EXPECT_EQ(problem.severity, Severity::kWarning);
  EXPECT_NE(problem.detail.find("observing only"), std::string::npos);
  EXPECT_NE(problem.fix, "");
}

TEST(Diagnosis, WithoutAGpuThatIsTheTrouble) {
  const auto findings = diagnose({.gpu = nullptr,
                                  .no_gpu_reason = "no driver",
                                  .observer = nullptr,
                                  .no_observer_reason = "",
                                  .state = nullptr,
                                  .config_error = "",
                                  .config_path = "",
                                  .has_supervisor = true});
  EXPECT_EQ(findings.front().severity, Severity::kFail);
  EXPECT_EQ(findings.front().detail, "no driver");
  EXPECT_NE(findings.front().fix, "");
}

}  // namespace
}  // namespace gpushare
