// SPDX-License-Identifier: Apache-2.0
#include "sched/module/user_ids.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>

namespace gpushare {
namespace {

using namespace std::chrono_literals;

// A name service that says nothing before it is told to, and then the number in "user7".
struct Service {
  std::latch may_answer{1};
  std::atomic<std::size_t> asked = 0;

  static UserIds::Ask of(const std::shared_ptr<Service>& service) {
    return [service](const std::string& user) -> std::optional<uid_t> {
      ++service->asked;
      service->may_answer.wait();
      if (!user.starts_with("user")) return std::nullopt;
      return static_cast<uid_t>(std::stoul(user.substr(4)));
    };
  }
};

TEST(UserIds, NamesAreAskedForAFewAtATimeAndTakenLate) {
  const auto service = std::make_shared<Service>();
  UserIds ids(Service::of(service));
  std::vector<std::string> names{"1234", "nobody-has-this"};
  for (std::size_t i = 0; i < 3 * UserIds::kMostAsked; ++i)
    names.push_back("user" + std::to_string(i));
  names.push_back("user1");
  ids.begin(names);
  EXPECT_EQ(ids.find("1234"), uid_t{1234});
  EXPECT_EQ(ids.find("user1"), std::nullopt);
  EXPECT_FALSE(ids.take_news());
  ids.begin(names);
  EXPECT_LE(service->asked, UserIds::kMostAsked) << "those of before hang still";

  service->may_answer.count_down();
  while (ids.find("user7") != uid_t{7} || ids.find("user23") != uid_t{23}) {
    (void)ids.take_news();
    std::this_thread::yield();
  }
  EXPECT_EQ(ids.find("nobody-has-this"), std::nullopt);
}

TEST(UserIds, WhoAnswersInTimeIsKnownAtOnce) {
  const auto service = std::make_shared<Service>();
  service->may_answer.count_down();
  UserIds ids(Service::of(service));
  // On a busy machine a thread may start late: then it is news.
  ids.begin({"user5"});
  while (!ids.find("user5")) (void)ids.take_news();
  EXPECT_EQ(ids.find("user5"), uid_t{5});
  EXPECT_FALSE(ids.take_news()) << "all is known";
  ids.begin({"user6"});
  EXPECT_EQ(ids.find("user5"), std::nullopt) << "it does not count any more";
}

}  // namespace
}  // namespace gpushare
