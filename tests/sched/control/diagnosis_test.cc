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

TEST(DiagnosisOfTurns, WhoIsStoppedInMidKernelIsNamed) {
  test::SchedulerRig rig;
  rig.start(true, "[gpu.0]\npolicy = 'fifo'\n");
  rig.run_for(1s);
  Symptoms symptoms;
  symptoms.gpu = &rig.gpu;
  symptoms.state = &rig.scheduler->state();
  EXPECT_EQ(of(diagnose(symptoms), "turns").severity, Severity::kOk);
  rig.add_busy("a", {});
  rig.add_busy("b", {});
  rig.run_for(12s);
  const Finding finding = of(diagnose(symptoms), "turns");
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_NE(finding.detail.find("1 of 2 jobs"), std::string::npos) << finding.detail;
  EXPECT_NE(finding.detail.find("pid-100"), std::string::npos) << finding.detail;
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

TEST_F(DiagnosisTest, AConfigurationThatIsNotThereIsNotCalledRead) {
  EXPECT_EQ(of(diagnose(), "configuration").detail, "gpushare.toml");
  symptoms_.is_config_there = false;
  EXPECT_EQ(of(diagnose(), "configuration").severity, Severity::kOk);
  EXPECT_EQ(of(diagnose(), "configuration").detail,
            "gpushare.toml is not there: the defaults hold");
}

TEST_F(DiagnosisTest, NamesTheTenantWhoseProcessesAreTooManyToRemember) {
  Roster roster(*rig_.region);
  rig_.tenants = Tenants(&roster);
  (void)rig_.tenants.set("bomb", {}, /*create=*/true).value();
  (void)rig_.tenants.attach({1, 1}, "bomb").value();
  for (uint64_t child = 2; child < kMaxRosterProcesses + 3; ++child) {
    ProcessIdentity identity;
    identity.id = {static_cast<pid_t>(child), child};
    identity.ancestors = {{1, 1}};
    rig_.tenants.add_process(identity);
  }
  const auto findings = diagnose();
  EXPECT_EQ(of(findings, "memberships").severity, Severity::kWarning);
  EXPECT_TRUE(of(findings, "memberships").detail.starts_with("2 processes of 'bomb' "));
}

TEST_F(DiagnosisTest, SaysWhatSeesProgramsAndWhatTheModuleIsGoodFor) {
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

TEST_F(DiagnosisTest, SaysWhetherDaemonsStayInTheirTenant) {
  EXPECT_EQ(of(diagnose(), "daemons").severity, Severity::kOk);
  symptoms_.no_lineage_reason = "needs root";
  const Finding trouble = of(diagnose(), "daemons");
  EXPECT_EQ(trouble.severity, Severity::kWarning);
  EXPECT_NE(trouble.detail.find("needs root"), std::string::npos);
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
