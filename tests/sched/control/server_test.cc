// SPDX-License-Identifier: Apache-2.0
// The control socket and its bounds, on an event loop of the test's own.
#include "sched/control/server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <asio/post.hpp>
#include <cstdio>
#include <future>
#include <thread>
#include <vector>

#include "sched/control/turns.h"
#include "shmctl/base/unix_socket.h"
#include "shmctl/program/temp_folder.h"
#include "tests/support/sanitized.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;

TEST(TurnsTest, EachUserComesInItsTurnHoweverManyItHas) {
  Turns<int> turns;
  for (int i = 0; i < 3; ++i) turns.add(1000, i);
  turns.add(7, 10);
  turns.add(2000, 20);
  std::vector<int> order;
  while (const auto next = turns.take()) order.push_back(*next);
  EXPECT_EQ(order, (std::vector<int>{10, 0, 20, 1, 2}));
  EXPECT_TRUE(turns.is_empty());
}

class ControlServerTest : public ::testing::Test {
 protected:
  void listen(ControlServer::Handle handle, ControlServer::Patience patience = {}) {
    server_ = ControlServer::listen(loop_, path_, std::move(handle), patience).value();
  }
  Fd connect() { return connect_to_socket(path_, "ask").value(); }
  static void say(const Fd& client, std::string_view text) {
    ASSERT_EQ(::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Runs the loop until it holds; a test that waits for nothing is ended by its runner.
  void until(const std::function<bool()>& holds) {
    while (!holds()) loop_.run_one_for(10ms);
  }
  // All that it was sent so far; "EOF" at its end.
  static std::string heard(const Fd& client) {
    std::string all;
    char bytes[65536];
    ssize_t n = 0;
    while ((n = ::recv(client.get(), bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
      all.append(bytes, static_cast<std::size_t>(n));
    return n == 0 || errno == ECONNRESET ? all + "EOF" : all;
  }

  const TempFolder folder_ = TempFolder::make("gpushare-control").value();
  const std::string path_ = folder_.at("agent.sock");
  asio::io_context loop_{1};
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlServerTest, AnswersInTheOrderOfTheRequests) {
  listen([](std::string_view line, const Peer&) { return Answer{.line = std::string(line)}; });
  const Fd client = connect();
  say(client, "one\ntwo\nthree\n");
  std::string all;
  until([&] { return (all += heard(client)).size() >= 14; });
  EXPECT_EQ(all, "one\ntwo\nthree\n");
}

// However long an answer takes, the loop goes on, and so do the other clients.
TEST_F(ControlServerTest, AnAnswerThatTakesLongHoldsNobodyUp) {
  std::promise<void> may_answer;
  const auto gate = may_answer.get_future().share();
  listen([&](std::string_view line, const Peer&) {
    if (line != "slow") return Answer{.line = "at once"};
    return Answer{.later = [gate] {
      gate.wait();
      return std::string("at last");
    }};
  });
  const Fd slow = connect(), other = connect();
  say(slow, "slow\nquick\n");
  say(other, "quick\n");
  std::string all;
  until([&] { return (all += heard(other)) == "at once\n"; });
  EXPECT_EQ(heard(slow), "") << "not even what it asked afterwards: answers keep their order";
  may_answer.set_value();
  all.clear();
  until([&] { return (all += heard(slow)).size() >= 16; });
  EXPECT_EQ(all, "at last\nat once\n");
}

TEST_F(ControlServerTest, OneRequestIsHandledInATurnOfTheLoop) {
  int handled = 0;
  listen([&](std::string_view, const Peer&) {
    ++handled;
    return Answer{.line = "x"};
  });
  std::vector<Fd> clients;
  for (int i = 0; i < 32; ++i) {
    clients.push_back(connect());
    say(clients.back(), "a\n");
  }
  bool has_ended = false;
  int before = 0, most = 0;
  // Posted again and again, as the agent's steps are.
  std::function<void()> turn = [&] {
    most = std::max(most, handled - std::exchange(before, handled));
    if (!has_ended) asio::post(loop_, turn);
  };
  asio::post(loop_, turn);
  until([&] { return handled == 32; });
  has_ended = true;
  EXPECT_LE(most, 2);
}

TEST_F(ControlServerTest, WhoIsSilentIsDroppedAndWhoWaitsIsNot) {
  std::promise<void> may_answer;
  const auto gate = may_answer.get_future().share();
  listen(
      [&](std::string_view line, const Peer&) {
        if (line == "trace") return Answer{.line = "yes", .trace = 1h};
        return Answer{.later = [gate] {
          gate.wait();
          return std::string("done");
        }};
      },
      {.idle = 30ms, .look = 5ms});
  const Fd silent = connect(), waits = connect(), traces = connect();
  say(waits, "wait\n");
  say(traces, "trace\n");
  until([&] { return heard(silent) == "EOF"; });
  const Fd second = connect();  // as long again
  until([&] { return heard(second) == "EOF"; });
  EXPECT_EQ(heard(waits), "");
  EXPECT_EQ(heard(traces), "yes\n");
  may_answer.set_value();
  std::string all;
  until([&] { return (all += heard(waits)).starts_with("done\n"); });
}

TEST_F(ControlServerTest, WhoDoesNotReadIsDropped) {
  const std::string large(1 << 20, 'x');
  listen([&](std::string_view, const Peer&) { return Answer{.line = large}; },
         {.idle = 30ms, .look = 5ms});
  const Fd client = connect();
  say(client, "a\n");
  // It hears what its socket had room for, and no more.
  pollfd end{.fd = client.get(), .events = POLLRDHUP, .revents = 0};
  until([&] { return ::poll(&end, 1, 0) > 0; });
  EXPECT_LT(heard(client).size(), large.size());
}

// Another user is a child of this process. It asks for as much as it is sent, and reads nothing.
TEST_F(ControlServerTest, UsersTogetherHoldNoMoreThanThereIsRoomForAndEachHasItsShare) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be other users";
  const std::string large(1 << 20, 'x');
  listen([&](std::string_view, const Peer&) { return Answer{.line = large}; });
  ASSERT_EQ(::chmod(path_.c_str(), 0666), 0);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  std::vector<pid_t> users;
  for (uid_t user = 12'000; user < 12'004; ++user) {
    users.push_back(::fork());
    if (users.back() != 0) continue;
    if (::setuid(user) != 0) ::_exit(1);
    std::vector<Fd> clients;
    for (int i = 0; i < 64; ++i) {
      auto client = connect_to_socket(path_, "ask");
      if (!client) ::_exit(2);
      for (int requests = 0; requests < 4; ++requests)
        (void)::send(client->get(), "a\n", 2, MSG_NOSIGNAL | MSG_DONTWAIT);
      clients.push_back(std::move(*client));
    }
    ::pause();
  }
  const auto resident = [] {
    long all = 0, pages = 0;
    FILE* file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (file != nullptr) std::fclose(file);
    return static_cast<std::size_t>(pages * ::sysconf(_SC_PAGESIZE));
  };
  const std::size_t before = resident();
  std::size_t most = 0;
  const Time end = MonotonicClock().now() + 1s;
  while (MonotonicClock().now() < end) {
    loop_.run_one_for(10ms);
    most = std::max(most, resident());
  }
  if (GS_IS_SANITIZED == 0)
    EXPECT_LT(most - std::min(most, before), 6 * ControlServer::kMostUnsent)
        << "less than half of what they asked for";
  // Root is served all the same.
  const Fd client = connect();
  say(client, "a\n");
  std::string all;
  until([&] { return (all += heard(client)).size() > large.size(); });
  for (const pid_t user : users) {
    ::kill(user, SIGKILL);
    ::waitpid(user, nullptr, 0);
  }
}

// Nobody who starts may wait for whoever listens there.
TEST_F(ControlServerTest, OfAnotherIsLeftAloneAlsoWhenItsQueueIsFull) {
  const Fd listener = listen_on_socket(path_, 0600, "listen").value();
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  const Fd waiting = connect();
  const auto beside = ControlServer::listen(loop_, path_, nullptr);
  ASSERT_FALSE(beside);
  EXPECT_EQ(beside.error().code, std::errc::address_in_use);
}

}  // namespace
}  // namespace gpushare
