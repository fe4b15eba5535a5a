// SPDX-License-Identifier: Apache-2.0
#include "tools/top/model/model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "tests/tools/support/fake_plane.h"
#include "tools/base/format.h"

namespace gpushare {
namespace {

constexpr Time kNow{std::chrono::seconds(1000)};

Status fake_status(const FakePlane& fake) {
  return {.snapshot = fake_snapshot(fake, kNow),
          .health = {AgentHealth::State::kLive, {}},
          .taken = kNow};
}

class TopModelTest : public testing::Test {
 protected:
  TopModelTest() { model.update(fake_status({.gpus = 2, .processes = 7}), kNow); }

  TopModel::Effect press(char key) { return model.press({Key::Kind::kCharacter, key}, 5); }
  TopModel::Effect press(Key::Kind kind) { return model.press({kind}, 5); }
  void type(std::string_view text) {
    for (char key : text) press(key);
  }
  std::vector<pid_t> pids() const {
    std::vector<pid_t> list;
    for (const TopLine& line : model.lines())
      if (line.process != nullptr) list.push_back(line.process->record.pid);
    return list;
  }
  void choose(pid_t pid) {
    press(Key::Kind::kHome);
    while (model.lines()[model.selected()].process == nullptr ||
           model.lines()[model.selected()].process->record.pid != pid)
      press(Key::Kind::kDown);
  }

  TopModel model;
};

TEST_F(TopModelTest, SortsByShareFirstAndByTheKeyOfEachColumn) {
  EXPECT_EQ(pids().front(), 4000);
  EXPECT_EQ(pids().back(), 4005);  // its share is unknown
  press('P');
  EXPECT_TRUE(std::ranges::is_sorted(pids()));
  press('P');
  EXPECT_TRUE(std::ranges::is_sorted(pids(), std::greater<>()));
  press('P');
  EXPECT_TRUE(std::ranges::is_sorted(pids()));
  for (const FieldSpec& spec : kFields) {
    if (spec.sort_key == 0) continue;
    press(spec.sort_key);
    EXPECT_EQ(model.choices().sort, spec.field);
  }
}

TEST_F(TopModelTest, TheChoiceStaysOnItsProcess) {
  choose(4002);
  press('P');
  EXPECT_EQ(model.lines()[model.selected()].process->record.pid, 4002);
  model.update(fake_status({.gpus = 2, .processes = 40}), kNow);
  EXPECT_EQ(model.lines()[model.selected()].process->record.pid, 4002);
  // When the chosen process ends, another row that exists is chosen.
  model.update(fake_status({.gpus = 2, .processes = 1}), kNow);
  EXPECT_EQ(model.selected(), 0u);
  model.update(fake_status({.gpus = 2, .processes = 0}), kNow);
  EXPECT_TRUE(model.lines().empty());
  for (char key : std::string("jkf+-tvSP")) press(key);
  EXPECT_EQ(model.selected(), 0u);
}

TEST_F(TopModelTest, MovesByRowsAndPagesAndStopsAtTheEnds) {
  press(Key::Kind::kUp);
  EXPECT_EQ(model.selected(), 0u);
  press(Key::Kind::kPageDown);
  EXPECT_EQ(model.selected(), 5u);
  press(Key::Kind::kPageDown);
  EXPECT_EQ(model.selected(), 6u);
  press(Key::Kind::kHome);
  EXPECT_EQ(model.selected(), 0u);
  press(Key::Kind::kEnd);
  EXPECT_EQ(model.selected(), 6u);
}

TEST_F(TopModelTest, FiltersByWhatIsShown) {
  press('/');
  EXPECT_EQ(model.mode(), TopModel::Mode::kFilter);
  type("BATCH");
  EXPECT_EQ(pids().size(), 2u);
  press(Key::Kind::kEnter);
  EXPECT_EQ(model.mode(), TopModel::Mode::kList);
  EXPECT_EQ(pids().size(), 2u);
  press(Key::Kind::kEscape);
  EXPECT_EQ(pids().size(), 7u);
  press('/');
  type("qq");  // not the key that quits
  EXPECT_TRUE(pids().empty());
  press(Key::Kind::kBackspace);
  press(Key::Kind::kBackspace);
  type("frozen: cap");
  EXPECT_EQ(pids(), std::vector<pid_t>{4002});
}

TEST_F(TopModelTest, FreezesOnlyAfterSayingWhat) {
  Status status = fake_status({.gpus = 2, .processes = 7});
  status.snapshot.processes[2].record.start_ticks = 77;
  model.update(status, kNow);
  choose(4002);
  EXPECT_TRUE(press('f').deed.is_empty());
  EXPECT_EQ(model.mode(), TopModel::Mode::kConfirm);
  EXPECT_NE(model.message().find("freeze process 4002 ./render --scen of tenant capped"),
            std::string::npos)
      << model.message();
  const auto effect = press('y');
  ASSERT_EQ(effect.deed.requests.size(), 1u);
  EXPECT_EQ(effect.deed.requests.front().op, "freeze");
  EXPECT_EQ(effect.deed.requests.front().pid, 4002);
  EXPECT_EQ(effect.deed.requests.front().start_ticks, 77U) << "none that has its number later";
  model.report_done({});
  EXPECT_NE(model.message().find("done"), std::string::npos);
}

TEST_F(TopModelTest, AnyOtherKeyMeansNo) {
  for (char key : std::string("nq tf")) {
    press('t');
    EXPECT_TRUE(press(key).deed.is_empty());
    EXPECT_EQ(model.mode(), TopModel::Mode::kList);
    EXPECT_EQ(model.message(), "");
  }
  press('t');
  EXPECT_TRUE(press(Key::Kind::kEnter).deed.is_empty());
}

TEST_F(TopModelTest, TheQuestionIsAboutTheRowThatWasChosenThen) {
  choose(4000);
  press('f');
  model.update(fake_status({.gpus = 2, .processes = 1}), kNow);
  press('P');  // the question is still open: this means no
  EXPECT_EQ(model.mode(), TopModel::Mode::kList);
  choose(4000);
  press('f');
  model.update(fake_status({.gpus = 2, .processes = 3}), kNow);
  const auto effect = press('y');
  ASSERT_EQ(effect.deed.requests.size(), 1u);
  EXPECT_EQ(effect.deed.requests.front().pid, 4000);
}

TEST_F(TopModelTest, WeightsGoUpAndDownByATenth) {
  choose(4000);
  const auto up = press('+');
  ASSERT_EQ(up.deed.requests.size(), 1u);
  EXPECT_EQ(up.deed.requests.front().op, "set");
  EXPECT_EQ(up.deed.requests.front().tenant, "research");
  EXPECT_EQ(up.deed.requests.front().settings.front(),
            (std::pair<std::string, std::string>{"weight", "330"}));
  EXPECT_EQ(press('-').deed.requests.front().settings.front().second, "270");
}

// The agent shows it with its next step: who presses again before goes on from there.
TEST_F(TopModelTest, AWeightThatWasSetHoldsUntilTheAgentShowsIt) {
  choose(4000);
  const auto weight_after = [&](char key) {
    return press(key).deed.requests.front().settings.front().second;
  };
  EXPECT_EQ(weight_after('+'), "330");
  model.report_done({});
  model.update(fake_status({.gpus = 1, .processes = 7}), kNow + 10ms);  // as it was
  EXPECT_EQ(weight_after('+'), "363");
  model.report_done(make_error(std::errc::permission_denied, "set", "refused"));
  EXPECT_EQ(weight_after('-'), "297") << "of 330";
  model.update(fake_status({.gpus = 1, .processes = 7}), kNow + 5s);
  EXPECT_EQ(weight_after('+'), "330") << "somebody else has set it to 300";
}

TEST_F(TopModelTest, WeightsStayInTheirRange) {
  Status status = fake_status({.gpus = 1, .processes = 1});
  status.snapshot.tenants[1].record.weight = 1;
  model.update(status, kNow);
  EXPECT_EQ(press('-').deed.requests.front().settings.front().second, "1");
  EXPECT_EQ(press('+').deed.requests.front().settings.front().second, "2");
  status.snapshot.tenants[1].record.weight = 10'000;
  model.update(status, kNow);
  EXPECT_EQ(press('+').deed.requests.front().settings.front().second, "10000");
}

TEST_F(TopModelTest, GroupsByTenantAndActsOnTheWholeTenant) {
  press('v');
  ASSERT_EQ(model.lines().size(), 4u + 7u);
  EXPECT_EQ(model.lines()[0].kind, TopLine::Kind::kTenant);
  EXPECT_EQ(pids().size(), 7u);
  press(Key::Kind::kHome);
  press('f');
  EXPECT_NE(model.message().find("freeze all of tenant default (3 processes)"), std::string::npos)
      << model.message();
  const auto effect = press('y');
  ASSERT_EQ(effect.deed.requests.size(), 1u);
  EXPECT_EQ(effect.deed.requests.front().tenant, "default");
  EXPECT_FALSE(effect.deed.requests.front().pid);
  press('/');
  type("batch-a");
  EXPECT_EQ(model.lines().size(), 2u);  // its tenant and it
}

TEST_F(TopModelTest, ATenantHasALineForEachGpuWithTargets) {
  Status status = fake_status({.gpus = 2, .processes = 7, .has_targets = true});
  TenantRecord& research = status.snapshot.tenants[1].record;
  research.gpu[1] = research.gpu[0];
  model.update(status, kNow);
  press('v');
  std::vector<uint32_t> gpus;
  for (const TopLine& line : model.lines())
    if (line.kind == TopLine::Kind::kTenant && std::string_view(line.tenant->name) == "research") {
      ASSERT_NE(line.use, nullptr);
      gpus.push_back(line.gpu);
    }
  EXPECT_EQ(gpus, (std::vector<uint32_t>{0, 1}));
  // Each row can be chosen, and both stand for the whole tenant.
  press(Key::Kind::kHome);
  for (size_t i = 0; i < model.lines().size() && model.lines()[model.selected()].gpu != 1; ++i)
    press('j');
  model.update(status, kNow);
  EXPECT_EQ(model.lines()[model.selected()].gpu, 1u);
  press('f');
  EXPECT_EQ(press('y').deed.requests.front().tenant, "research");
  // A filter that matches nothing of the tenant hides both rows.
  press('/');
  type("batch-a");
  EXPECT_EQ(model.lines().size(), 2u);
}

TEST_F(TopModelTest, GroupsShowProcessesWhoseTenantIsUnknownToo) {
  Status status = fake_status({.gpus = 1, .processes = 2});
  status.snapshot.processes[0].record.tenant = 99;
  model.update(status, kNow);
  press('v');
  EXPECT_EQ(pids().size(), 2u);
  choose(4000);
  EXPECT_TRUE(press('+').deed.is_empty());  // there is no tenant to weigh
}

TEST_F(TopModelTest, AFailedRequestIsShownAsOne) {
  choose(4000);
  press('+');
  model.report_done(make_error(std::errc::permission_denied, "gpushared", "not yours"));
  EXPECT_TRUE(model.is_message_bad());
  EXPECT_NE(model.message().find("not yours"), std::string::npos);
  press(Key::Kind::kEscape);
  EXPECT_EQ(model.message(), "");
}

TEST(TopModelStart, EveryColumnThatCanBeSortedHasAName) {
  EXPECT_EQ(sort_field_named("mem"), Field::kMemory);
  EXPECT_EQ(sort_field_named("share"), TopModel().choices().sort);
  EXPECT_EQ(sort_field_named("history"), std::nullopt);
  EXPECT_EQ(sort_field_named("sha"), std::nullopt);
  EXPECT_EQ(sort_field_named(""), std::nullopt);
  EXPECT_EQ(sort_field_names(),
            "gpu pid user tenant command target share slice state turn left tokens mem");
  const TopModel model({.sort = Field::kMemory}, "alice");
  EXPECT_EQ(model.choices().sort, Field::kMemory);
  EXPECT_EQ(model.filter(), "alice");
}

// --- settings and signals, typed in place ---

TEST_F(TopModelTest, ASettingIsTypedInPlaceOfTheOldOne) {
  choose(4002);
  press('c');
  EXPECT_EQ(model.mode(), TopModel::Mode::kInput);
  EXPECT_EQ(model.input().about, "max of tenant capped");
  EXPECT_EQ(model.input().text, "20%");
  EXPECT_NE(model.input().allowed, "");
  type("35%");
  EXPECT_EQ(model.input().text, "35%");
  const auto effect = press(Key::Kind::kEnter);
  EXPECT_EQ(model.mode(), TopModel::Mode::kList);
  ASSERT_EQ(effect.deed.requests.size(), 1u);
  EXPECT_EQ(effect.deed.requests[0].op, "set");
  EXPECT_EQ(effect.deed.requests[0].tenant, "capped");
  EXPECT_EQ(effect.deed.requests[0].settings.front(),
            (std::pair<std::string, std::string>{"max", "35%"}));
  model.report_done(make_error(std::errc::permission_denied, "gpushared", "only for root"));
  EXPECT_EQ(model.message().find("max of capped from 20% to 35%: "), 0u) << model.message();
  EXPECT_NE(model.message().find("only for root"), std::string::npos) << model.message();
  EXPECT_TRUE(model.is_message_bad());
}

TEST_F(TopModelTest, WhatASettingDoesNotDoIsSaid) {
  choose(4002);
  press('m');
  type("12G");
  press(Key::Kind::kEnter);
  model.report_done({}, {"warning: memory_max=12G does not bind: no module"});
  EXPECT_TRUE(
      model.message().ends_with(" to 12G: done; warning: memory_max=12G does not bind: no module"))
      << model.message();
  EXPECT_TRUE(model.is_message_bad());
}

TEST_F(TopModelTest, AProcessWithoutACommandLeavesNoGap) {
  Status status = fake_status({.processes = 1});
  status.snapshot.processes[0].record.command[0] = '\0';
  model.update(status, kNow);
  press('f');
  EXPECT_EQ(model.message(), "freeze process 4000 of tenant research? y n");
}

TEST_F(TopModelTest, EachSettingHasItsKeyAndSaysWhatIsAllowed) {
  choose(4000);
  for (const auto& [key, setting, wrong] :
       {std::tuple{'w', "weight", "0"}, std::tuple{'c', "max", "0%"},
        std::tuple{'p', "priority", "urgent"}, std::tuple{'m', "memory_max", "a lot"}}) {
    press(key);
    EXPECT_EQ(model.input().about, std::string(setting) + " of tenant research");
    const std::string allowed = model.input().allowed;
    type(wrong);
    EXPECT_TRUE(press(Key::Kind::kEnter).deed.is_empty()) << setting;
    EXPECT_TRUE(model.is_message_bad());
    EXPECT_NE(model.message().find(allowed), std::string::npos) << model.message();
    press(key);
    EXPECT_TRUE(press(Key::Kind::kEscape).deed.is_empty());
    EXPECT_EQ(model.mode(), TopModel::Mode::kList);
    EXPECT_EQ(model.message(), "");
  }
  press('w');
  press(Key::Kind::kBackspace);  // keeps what is there, less one
  EXPECT_EQ(model.input().text, "30");
}

TEST_F(TopModelTest, ASignalIsAskedForTwice) {
  Status status = fake_status({.gpus = 2, .processes = 7});
  status.snapshot.processes[0].record.start_ticks = 77;
  model.update(status, kNow);
  choose(4000);
  press(Key::Kind::kFunction);  // an F-key that does nothing
  press('s');
  EXPECT_EQ(model.input().text, "TERM");
  EXPECT_TRUE(press(Key::Kind::kEnter).deed.is_empty());
  EXPECT_EQ(model.mode(), TopModel::Mode::kConfirm);
  EXPECT_NE(
      model.message().find("send SIGTERM to process 4000 python train.py of tenant research?"),
      std::string::npos)
      << model.message();
  const auto effect = press('y');
  ASSERT_EQ(effect.deed.signals.size(), 1u);
  EXPECT_EQ(effect.deed.signals[0].process, (ProcessId{4000, 77}));
  EXPECT_EQ(effect.deed.signals[0].number, SIGTERM);
  for (const auto& [typed, number] :
       {std::pair{"kill", SIGKILL}, std::pair{"SIGINT", SIGINT}, std::pair{"10", 10}}) {
    press('s');
    type(typed);
    press(Key::Kind::kEnter);
    EXPECT_EQ(press('y').deed.signals.at(0).number, number) << typed;
  }
  for (const char* typed : {"0", "65", "-9", "NONE", "9x", "sig"}) {
    press('s');
    type(typed);
    press(Key::Kind::kEnter);
    EXPECT_EQ(model.mode(), TopModel::Mode::kList) << typed;
    EXPECT_TRUE(model.is_message_bad()) << typed;
  }
}

TEST_F(TopModelTest, ATenantsProcessesGetASignalEachOnce) {
  press('v');
  press('/');
  type("batch");
  press(Key::Kind::kEnter);
  press(Key::Kind::kHome);
  press('s');
  press(Key::Kind::kEnter);
  EXPECT_NE(model.message().find("all of tenant batch (2 processes)"), std::string::npos)
      << model.message();
  EXPECT_EQ(press('y').deed.signals.size(), 2u);
}

TEST_F(TopModelTest, WithoutRowsThereIsNothingToDo) {
  model.update(fake_status({.gpus = 1, .processes = 0}), kNow);
  for (char key : std::string("ftswcpm+-")) {
    EXPECT_TRUE(press(key).deed.is_empty()) << key;
    EXPECT_EQ(model.mode(), TopModel::Mode::kList) << key;
    EXPECT_TRUE(model.is_message_bad()) << key;
  }
}

// --- the tree ---

TEST_F(TopModelTest, JobsStandBetweenTenantsAndProcesses) {
  Status status = fake_status({.gpus = 2, .processes = 7});
  status.snapshot.processes[3].record.run = 12;  // both of tenant batch
  status.snapshot.processes[4].record.run = 12;
  model.update(status, kNow);
  press('v');
  press(Key::Kind::kFunction);
  model.press({Key::Kind::kFunction, 5}, 5);
  EXPECT_EQ(model.choices().grouping, Grouping::kJobs);
  ASSERT_EQ(model.lines().size(), 4u + 1u + 7u);
  const auto job = std::ranges::find(model.lines(), TopLine::Kind::kJob, &TopLine::kind);
  ASSERT_NE(job, model.lines().end());
  EXPECT_EQ(job_name(job->job), "run-12");
  EXPECT_EQ(job[1].depth, 2);
  EXPECT_FALSE(job[1].is_last);
  EXPECT_TRUE(job[2].is_last);
  model.click({.line = static_cast<size_t>(job - model.lines().begin())});
  press('f');
  EXPECT_NE(model.message().find("freeze all of job run-12 of tenant batch (2 processes)"),
            std::string::npos)
      << model.message();
  EXPECT_EQ(press('y').deed.requests.size(), 2u);
}

TEST_F(TopModelTest, ATenantCanBeFolded) {
  press('v');
  press(Key::Kind::kHome);
  const size_t all = model.lines().size();
  press(Key::Kind::kEnter);
  EXPECT_EQ(model.lines().size(), all - 3);
  EXPECT_TRUE(model.lines()[0].is_folded);
  model.update(fake_status({.gpus = 2, .processes = 7}), kNow);
  EXPECT_EQ(model.lines().size(), all - 3);
  model.click({.line = 0});  // the chosen one again
  EXPECT_EQ(model.lines().size(), all);
}

// What a department has is shown and meant with it; folded it hides those below it, too.
TEST_F(TopModelTest, ATenantHasWithItWhatThoseBelowItHave) {
  Status status = fake_status({.gpus = 2, .processes = 7});
  auto& tenants = status.snapshot.tenants;
  const auto named = [&](std::string_view name) {
    return std::ranges::find(tenants, name,
                             [](const auto& one) { return tenant_text(one.record); });
  };
  const auto capped = named("capped"), batch = named("batch");
  ASSERT_TRUE(capped != tenants.end() && batch != tenants.end());
  std::string_view("batch/capped").copy(capped->record.name, sizeof(capped->record.name));
  const auto processes = [&](uint32_t slot) {
    return std::ranges::count_if(status.snapshot.processes,
                                 [&](const auto& one) { return one.record.tenant == slot; });
  };
  const auto own = processes(batch->slot), below = processes(capped->slot);
  ASSERT_GT(own, 0);
  ASSERT_GT(below, 0);
  model.update(status, kNow);
  press('v');
  const auto line_of = [&](std::string_view name) {
    return std::ranges::find_if(model.lines(), [&](const TopLine& line) {
      return line.kind == TopLine::Kind::kTenant && tenant_text(*line.tenant) == name;
    });
  };
  const auto department = line_of("batch");
  EXPECT_EQ(line_of("batch/capped") - department, 1 + own);
  EXPECT_EQ(department->has.size(), static_cast<size_t>(own));
  EXPECT_EQ(department->all.size(), static_cast<size_t>(own + below));
  const size_t all = model.lines().size();
  model.click({.line = static_cast<size_t>(department - model.lines().begin())});
  press('f');
  EXPECT_NE(model.message().find(fmt::format(
                "freeze all of tenant batch and of those below it ({} processes)", own + below)),
            std::string::npos)
      << model.message();
  press('n');
  press(Key::Kind::kEnter);
  EXPECT_EQ(model.lines().size(), all - static_cast<size_t>(own + below + 1));
}

// --- order and mouse ---

TEST_F(TopModelTest, RowsThatWaverStayWhereTheyAre) {
  Status status = fake_status({.gpus = 1, .processes = 3});
  const auto shares = [&](uint32_t a, uint32_t b, uint32_t c) {
    status.snapshot.processes[0].record.share_permille = a;
    status.snapshot.processes[1].record.share_permille = b;
    status.snapshot.processes[2].record.share_permille = c;
    model.update(status, kNow);
    return pids();
  };
  model.update(fake_status({.gpus = 1, .processes = 0}), kNow);
  EXPECT_EQ(shares(300, 310, 290), (std::vector<pid_t>{4001, 4000, 4002}));
  EXPECT_EQ(shares(305, 295, 300), (std::vector<pid_t>{4001, 4000, 4002}));
  EXPECT_EQ(shares(300, 290, 310), (std::vector<pid_t>{4001, 4000, 4002}));
  EXPECT_EQ(shares(100, 290, 600), (std::vector<pid_t>{4002, 4001, 4000}));
  EXPECT_EQ(shares(100, kUnknown32, 600), (std::vector<pid_t>{4002, 4000, 4001}));
}

TEST_F(TopModelTest, AClickChoosesSortsAndPresses) {
  model.click({.line = 3});
  EXPECT_EQ(model.selected(), 3u);
  model.click({.line = 99});
  EXPECT_EQ(model.selected(), 3u);
  model.click({.title = Field::kMemory});
  EXPECT_EQ(model.choices().sort, Field::kMemory);
  EXPECT_TRUE(model.click({.key = Key{Key::Kind::kFunction, 10}}).quits);
  press('f');
  EXPECT_TRUE(model.click({.line = 1}).deed.is_empty());  // it is no yes
  EXPECT_EQ(model.mode(), TopModel::Mode::kList);
  press(Key::Kind::kHome);
  press(Key::Kind::kWheelDown);
  EXPECT_EQ(model.selected(), 3u);
  press(Key::Kind::kWheelUp);
  EXPECT_EQ(model.selected(), 0u);
}

TEST_F(TopModelTest, F6SortsByTheNextColumnThatCanBeSorted) {
  std::set<Field> seen;
  for (size_t i = 0; i < kFieldCount; ++i) {
    model.press({Key::Kind::kFunction, 6}, 5);
    seen.insert(model.choices().sort);
  }
  EXPECT_EQ(seen.size(), kFieldCount - 1);  // all but the history
}

TEST_F(TopModelTest, HelpStopAndQuit) {
  press('?');
  EXPECT_EQ(model.mode(), TopModel::Mode::kHelp);
  EXPECT_FALSE(press('x').quits);
  EXPECT_EQ(model.mode(), TopModel::Mode::kList);
  press('?');
  EXPECT_FALSE(press('q').quits) << "any key goes back";
  EXPECT_EQ(model.mode(), TopModel::Mode::kList);
  press(' ');
  EXPECT_TRUE(model.is_paused());
  EXPECT_TRUE(press('q').quits);
}

}  // namespace
}  // namespace gpushare
