// SPDX-License-Identifier: Apache-2.0
#include "tools/top/model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tools/support/fake_plane.h"

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
    EXPECT_EQ(model.sort_field(), spec.field);
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
  choose(4002);
  EXPECT_FALSE(press('f').request);
  EXPECT_EQ(model.mode(), TopModel::Mode::kConfirm);
  EXPECT_NE(model.message().find("freeze process 4002 ./render --scen of tenant capped"),
            std::string::npos)
      << model.message();
  const auto effect = press('y');
  ASSERT_TRUE(effect.request);
  EXPECT_EQ(effect.request->op, "freeze");
  EXPECT_EQ(effect.request->pid, 4002);
  model.report_done({});
  EXPECT_NE(model.message().find("done"), std::string::npos);
}

TEST_F(TopModelTest, AnyOtherKeyMeansNo) {
  for (char key : std::string("nq tf")) {
    press('t');
    EXPECT_FALSE(press(key).request);
    EXPECT_EQ(model.mode(), TopModel::Mode::kList);
    EXPECT_EQ(model.message(), "");
  }
  press('t');
  EXPECT_FALSE(press(Key::Kind::kEnter).request);
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
  ASSERT_TRUE(effect.request);
  EXPECT_EQ(effect.request->pid, 4000);
}

TEST_F(TopModelTest, WeightsGoUpAndDownByATenth) {
  choose(4000);
  const auto up = press('+');
  ASSERT_TRUE(up.request);
  EXPECT_EQ(up.request->op, "set");
  EXPECT_EQ(up.request->tenant, "research");
  EXPECT_EQ(up.request->settings.front(), (std::pair<std::string, std::string>{"weight", "330"}));
  EXPECT_EQ(press('-').request->settings.front().second, "270");
}

TEST_F(TopModelTest, WeightsStayInTheirRange) {
  Status status = fake_status({.gpus = 1, .processes = 1});
  status.snapshot.tenants[1].record.weight = 1;
  model.update(status, kNow);
  EXPECT_EQ(press('-').request->settings.front().second, "1");
  EXPECT_EQ(press('+').request->settings.front().second, "2");
  status.snapshot.tenants[1].record.weight = 10'000;
  model.update(status, kNow);
  EXPECT_EQ(press('+').request->settings.front().second, "10000");
}

TEST_F(TopModelTest, GroupsByTenantAndActsOnTheWholeTenant) {
  press('v');
  ASSERT_EQ(model.lines().size(), 4u + 7u);
  EXPECT_NE(model.lines()[0].tenant, nullptr);
  EXPECT_EQ(pids().size(), 7u);
  press(Key::Kind::kHome);
  press('f');
  EXPECT_NE(model.message().find("freeze all of tenant default (3 processes)"), std::string::npos)
      << model.message();
  const auto effect = press('y');
  ASSERT_TRUE(effect.request);
  EXPECT_EQ(effect.request->tenant, "default");
  EXPECT_FALSE(effect.request->pid);
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
    if (line.tenant != nullptr && std::string_view(line.tenant->name) == "research") {
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
  EXPECT_EQ(press('y').request->tenant, "research");
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
  EXPECT_FALSE(press('+').request);  // there is no tenant to weigh
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
  EXPECT_EQ(sort_field_named("share"), TopModel().sort_field());
  EXPECT_EQ(sort_field_named("history"), std::nullopt);
  EXPECT_EQ(sort_field_named("sha"), std::nullopt);
  EXPECT_EQ(sort_field_named(""), std::nullopt);
  EXPECT_EQ(sort_field_names(),
            "gpu pid tenant command target share slice state turn left tokens mem");
  const TopModel model(Field::kMemory, "alice");
  EXPECT_EQ(model.sort_field(), Field::kMemory);
  EXPECT_EQ(model.filter(), "alice");
}

TEST_F(TopModelTest, HelpStopAndQuit) {
  press('?');
  EXPECT_EQ(model.mode(), TopModel::Mode::kHelp);
  EXPECT_FALSE(press('x').quits);
  EXPECT_EQ(model.mode(), TopModel::Mode::kList);
  press(' ');
  EXPECT_TRUE(model.is_paused());
  EXPECT_TRUE(press('q').quits);
}

}  // namespace
}  // namespace gpushare
