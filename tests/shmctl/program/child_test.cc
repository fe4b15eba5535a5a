// SPDX-License-Identifier: Apache-2.0
#include "shmctl/program/child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "shmctl/program/temp_folder.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

Child shell(const std::string& script, Launch launch = {}) {
  launch.command = {"sh", "-c", script};
  auto child = Child::start(std::move(launch));
  if (!child) throw std::runtime_error(child.error().message());
  return std::move(*child);
}

TEST(Child, AFailureShowsTheEndOfTheOutput) {
  Child child = shell("for i in 1 2 3 4 5 6 7 8; do echo $i; done; echo why it failed >&2; exit 3",
                      {.name = "sad"});
  EXPECT_EQ(child.finish(), 3);
  EXPECT_FALSE(child.has_succeeded());
  EXPECT_EQ(child.last_line(), "8");
  EXPECT_EQ(child.errors(), "why it failed\n");
  const std::string message = child.failure("test").message();
  EXPECT_THAT(message, AllOf(HasSubstr("sad ended with status 3"), HasSubstr("why it failed")));
  EXPECT_THAT(message, AllOf(HasSubstr("output:\n    2\n"), testing::Not(HasSubstr(" 1\n"))));
}

TEST(Child, OneThatWroteNothingIsSaidToHaveDoneSo) {
  Child child = shell("kill -9 $$", {.name = "mute"});
  EXPECT_EQ(child.finish(), 128 + SIGKILL);
  EXPECT_THAT(child.failure("test").message(),
              HasSubstr("mute was killed by signal 9; it printed nothing"));
  EXPECT_EQ(child.last_line(), "");
}

TEST(Child, WhatDoesNotExistIsAnErrorAndNoChild) {
  const auto child = Child::start({.command = {"/nonexistent/program"}});
  ASSERT_FALSE(child);
  EXPECT_THAT(child.error().message(),
              AllOf(HasSubstr("/nonexistent/program"), HasSubstr("No such")));
}

TEST(Child, OneThatIgnoresTheRequestIsKilled) {
  Child child = shell("trap '' TERM; echo ready; while :; do sleep 0.01; done");
  ASSERT_TRUE(child.await("be ready", [&] { return child.last_line() == "ready"; }, 20s));
  EXPECT_EQ(child.stop(50ms), 128 + SIGKILL);
  EXPECT_TRUE(child.has_ended());
}

TEST(Child, TheEndSignalGivesItTimeToClearUp) {
  const auto folder = TempFolder::make("gpushare-child-test");
  const std::string file = folder->at("cleared");
  {
    const Child child =
        shell("trap 'touch " + file + "; exit' TERM; echo ready; while :; do sleep 0.01; done",
              {.end_signal = SIGTERM});
    ASSERT_TRUE(child.await("be ready", [&] { return child.last_line() == "ready"; }, 20s));
  }
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST(Child, AWaitNamesWhatDidNotCome) {
  Child child = shell("echo here; read nothing < /dev/zero", {.name = "idle"});
  const auto there = child.await("speak up", [] { return false; }, 200ms);
  ASSERT_FALSE(there);
  EXPECT_THAT(there.error().message(), HasSubstr("idle did not speak up within 0 s"));
  EXPECT_THAT(child.finish(1ms).error().message(), HasSubstr("idle did not end within"));
  EXPECT_TRUE(child.has_ended()) << "it was killed";
}

TEST(Child, ItsEndIsFoundWheneverItComes) {
  for (int i = 0; i < 200; ++i) {
    Child child = shell("exit 5");
    const auto status = child.finish(20s);
    ASSERT_TRUE(status) << status.error().message();
    ASSERT_EQ(*status, 5);
  }
}

TEST(Child, AWaitEndsWhenTheProgramDoes) {
  const Child child = shell("exit 4", {.name = "short"});
  const auto there = child.await("speak up", [] { return false; }, 20s);
  EXPECT_THAT(there.error().message(), HasSubstr("short ended with status 4"));
}

TEST(Child, TheEnvironmentCanBeAddedToAndTakenFromAndReplaced) {
  ::setenv("GPUSHARE_CHILD_TEST", "there", 1);
  const std::string script = "echo ${GPUSHARE_CHILD_TEST-gone}";
  for (const auto& [launch, expected] : {std::pair<Launch, const char*>{{}, "there"},
                                         {{.environment = {"GPUSHARE_CHILD_TEST"}}, "gone"},
                                         {{.environment = {"GPUSHARE_CHILD_TEST=new"}}, "new"},
                                         {{.is_environment_whole = true}, "gone"}}) {
    Child child = shell(script, launch);
    EXPECT_EQ(child.finish(), 0);
    EXPECT_EQ(child.last_line(), expected);
  }
}

TEST(Child, ALogKeepsWhatWasThereAndIsReadFromWhereTheChildBegan) {
  const auto folder = TempFolder::make("gpushare-child-test");
  const std::string log = folder->at("log");
  for (const char* word : {"first", "second"}) {
    Child child = shell(std::string("echo ") + word + "; echo problem >&2", {.log = log});
    EXPECT_EQ(child.finish(), 0);
    EXPECT_EQ(child.output(), std::string(word) + "\nproblem\n");
  }
  EXPECT_EQ(std::filesystem::file_size(log), 29u);
}

TEST(Wait, ASignalEndsItOnceAndForAll) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    Wait wait = Wait::until_interrupted();
    ::kill(::getpid(), SIGTERM);
    const bool is_first = !wait.until(MonotonicClock().now() + 20s);
    ::_exit(is_first && !wait.until(MonotonicClock().now()) ? 0 : 1);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Wait, TheConditionIsLookedAtOnceEvenWithoutTime) {
  EXPECT_TRUE(eventually([] { return true; }, 0s));
  EXPECT_FALSE(eventually([] { return false; }, 0s));
}

}  // namespace
}  // namespace gpushare
