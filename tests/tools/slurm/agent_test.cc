// SPDX-License-Identifier: Apache-2.0
// The plugin's client of the control socket, against agents that do not behave.
#include "tools/slurm/agent.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "shmctl/base/fd.h"
#include "tests/tools/support/temp_dir.h"
#include "tools/slurm/ended.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

std::string member(const char* json, const char* name) {
  int length = 0;
  const char* text = gs_member(json, name, &length);
  return text == nullptr ? "(none)" : std::string(text, static_cast<size_t>(length));
}

TEST(SlurmAgent, FindsMembersOfTheAnswerAndNoOthers) {
  constexpr const char* kAnswer =
      R"({"a":{"ok":false,"n":7},"error":"no \"ok\":true here","list":["ok",{"ok":1}],"ok":true,"n":42})";
  EXPECT_EQ(member(kAnswer, "ok"), "true");
  EXPECT_EQ(member(kAnswer, "n"), "42");
  EXPECT_EQ(gs_member_number(kAnswer, "n", 0), 42U);
  EXPECT_EQ(member(kAnswer, "error"), R"(no \"ok\":true here)");
  EXPECT_EQ(member(kAnswer, "here"), "(none)");
  EXPECT_EQ(gs_member_number(kAnswer, "ok", 5), 5U);
  EXPECT_EQ(gs_member_number(kAnswer, "missing", 5), 5U);
}

// Every beginning of an answer is read without a step beyond its end.
TEST(SlurmAgent, TakesAnyText) {
  const std::string whole = R"({"x\\\"":"\u00e9","error":"a\"b","ok":false,"n":-1,"m":[}{"]})";
  for (size_t length = 0; length <= whole.size(); ++length) {
    const std::string part = whole.substr(0, length);
    for (const char* name : {"error", "ok", "n", "", "x"}) member(part.c_str(), name);
  }
  EXPECT_EQ(gs_member_number(R"({"n":-1})", "n", 9), 9U);
}

class Answering {
 public:
  // `serve`: what an agent does with one connection.
  Answering(const std::string& path, std::function<void(int)> serve) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    thread_ = std::thread([this, serve = std::move(serve)] {
      while (true) {
        const Fd fd(::accept(listener_.get(), nullptr, nullptr));
        if (!fd.is_open()) return;
        serve(fd.get());
      }
    });
  }
  ~Answering() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  Fd listener_;
  std::thread thread_;
};

void say(int fd, const std::string& text) {
  char request[4096];
  if (::recv(fd, request, sizeof(request), 0) > 0)
    (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
}

struct Asked {
  gs_outcome outcome;
  std::string answer;
  std::chrono::steady_clock::duration took;
};

constexpr int kNeverMs = 60'000;

Asked ask(const std::string& path, int limit_ms) {
  char answer[GS_ANSWER_SIZE] = "";
  const auto began = std::chrono::steady_clock::now();
  const gs_outcome outcome = gs_ask(path.c_str(), R"({"op":"hello"})", limit_ms, answer);
  return {outcome, answer, std::chrono::steady_clock::now() - began};
}

TEST(SlurmAgent, SaysWhatTheAgentSaid) {
  const TempDir folder;
  const std::string path = folder.at("agent.sock");
  {
    const Answering agent(path, [](int fd) { say(fd, "{\"ok\":true,\"n\":3}\n"); });
    const Asked asked = ask(path, kNeverMs);
    EXPECT_EQ(asked.outcome, GS_DONE);
    EXPECT_EQ(asked.answer, R"({"ok":true,"n":3})");
  }
  ::unlink(path.c_str());
  const Answering agent(path, [](int fd) { say(fd, "{\"error\":\"no\",\"ok\":false}\n"); });
  const Asked asked = ask(path, kNeverMs);
  EXPECT_EQ(asked.outcome, GS_REFUSED);
  EXPECT_EQ(asked.answer, "no");
}

// However an agent hangs, the wait ends. The limit is 0.2 s; the bound is for a busy machine.
TEST(SlurmAgent, WaitsForNoAgentLongerThanItsLimit) {
  const TempDir folder;
  const std::vector<std::pair<const char*, std::function<void(int)>>> agents{
      {"ends at once", [](int) {}},
      {"has no newline", [](int fd) { say(fd, std::string(100, 'x')); }},
      {"has no end", [](int fd) { say(fd, std::string(100'000, 'x')); }},
      {"is not JSON", [](int fd) { say(fd, "yes\n"); }},
      {"says nothing",
       [](int fd) {
         char byte;
         while (::recv(fd, &byte, 1, 0) > 0) {
         }
       }},
  };
  int number = 0;
  for (const auto& [what, serve] : agents) {
    const std::string path = folder.at(std::to_string(number++));
    const Answering agent(path, serve);
    const Asked asked = ask(path, 200);
    EXPECT_EQ(asked.outcome, GS_ABSENT) << what;
    EXPECT_LT(asked.took, 5s) << what;
  }
  const Asked absent = ask(folder.at("none"), kNeverMs);
  EXPECT_EQ(absent.outcome, GS_ABSENT);
  EXPECT_LT(absent.took, 30s) << "nothing is waited for where there is no socket";
  EXPECT_EQ(ask(std::string(300, 'a'), kNeverMs).outcome, GS_ABSENT);
}

std::vector<std::string> removed;
int is_still_absent = 0;
int take(const char* tenant) {
  if (is_still_absent != 0) return -1;
  removed.emplace_back(tenant);
  return 0;
}

TEST(SlurmEnded, JobsAreNotedUntilAnAgentTookThem) {
  const TempDir folder;
  const std::string socket = folder.at("agent.sock");
  gs_take_ended(socket.c_str(), take);  // there is no list
  ASSERT_EQ(gs_note_ended(socket.c_str(), "team/slurm-12"), 0);
  ASSERT_EQ(gs_note_ended(socket.c_str(), "slurm-7"), 0);
  is_still_absent = 1;
  gs_take_ended(socket.c_str(), take);
  EXPECT_TRUE(removed.empty());
  is_still_absent = 0;
  gs_take_ended(socket.c_str(), take);
  EXPECT_EQ(removed, (std::vector<std::string>{"team/slurm-12", "slurm-7"}));
  gs_take_ended(socket.c_str(), take);
  EXPECT_EQ(removed.size(), 2U);
  EXPECT_NE(gs_note_ended("/nowhere/agent.sock", "slurm-1"), 0);
}

TEST(SlurmEnded, NoneOfManyIsLost) {
  const TempDir folder;
  const std::string socket = folder.at("agent.sock");
  std::vector<std::string> noted;
  for (int job = 0; job < 600; ++job) {
    noted.push_back("slurm-" + std::to_string(job));
    ASSERT_EQ(gs_note_ended(socket.c_str(), noted.back().c_str()), 0);
  }
  removed.clear();
  gs_take_ended(socket.c_str(), take);
  EXPECT_LT(removed.size(), noted.size()) << "no job waits for all of them";
  for (int call = 0; call < 3; ++call) gs_take_ended(socket.c_str(), take);
  EXPECT_EQ(removed, noted);
  EXPECT_EQ(TempDir::read(folder.at("slurm-ended")), "");
}

TEST(SlurmEnded, AListThatAnotherProcessHasIsWaitedFor) {
  const TempDir folder;
  const std::string socket = folder.at("agent.sock");
  ASSERT_EQ(gs_note_ended(socket.c_str(), "slurm-1"), 0);
  Fd other(::open(folder.at("slurm-ended").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  EXPECT_NE(gs_note_ended(socket.c_str(), "slurm-2"), 0) << "not for ever";
  std::thread releasing([&other] {
    std::this_thread::sleep_for(20ms);
    other = Fd();
  });
  EXPECT_EQ(gs_note_ended(socket.c_str(), "slurm-2"), 0);
  releasing.join();
  EXPECT_EQ(TempDir::read(folder.at("slurm-ended")), "slurm-1\nslurm-2\n");
}

}  // namespace
}  // namespace gpushare
