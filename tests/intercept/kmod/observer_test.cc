// SPDX-License-Identifier: Apache-2.0
#include "intercept/kmod/observer.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "intercept/kmod/calls.h"
#include "shmctl/base/proc_stat.h"
#include "tests/intercept/kmod/fake_kmod.h"

namespace gpushare {
namespace {

using test::FakeKmod;
using test::kmod_opened;
using test::kmod_record;

class KmodObserverTest : public ::testing::Test {
 protected:
  void start() {
    observer_ = KmodObserver::start(module_).value();
    observer_->set_listener([this](KernelNotice&& notice) { notices_.push_back(notice); });
  }
  std::vector<DriverEvent> drain() {
    std::vector<DriverEvent> events;
    const auto count =
        observer_->drain([&](DriverEvent&& event) { events.push_back(std::move(event)); });
    EXPECT_TRUE(count);
    EXPECT_EQ(count.value_or(0), events.size());
    return events;
  }
  bool is_readable(int timeout_ms = 0) {
    pollfd waiting{.fd = observer_->fd(), .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, timeout_ms) == 1;
  }
  // A process that opened the driver before the module was there, and that the observer watches.
  ProcessId watched_child() {
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    const ProcessId process{child, start_ticks_of(child)};
    EXPECT_TRUE(observer_->watch(process));
    return process;
  }
  static void kill_child(const ProcessId& process) {
    ::kill(process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
  }

  FakeKmod module_;
  std::unique_ptr<KmodObserver> observer_;
  std::vector<KernelNotice> notices_;
};

gpushare_event freed(uint32_t object) {
  gpushare_event record = kmod_record(GPUSHARE_EVENT_OBJECT_FREED);
  record.object.object = object;
  return record;
}

TEST_F(KmodObserverTest, HandsOutEventsAndNoticesInOrder) {
  start();
  EXPECT_FALSE(is_readable());
  module_.push(kmod_opened("batch"));
  module_.push(test::kmod_settings("batch", GPUSHARE_SETTING_WEIGHT));
  module_.push(freed(3));
  EXPECT_TRUE(is_readable());
  const auto events = drain();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<ProcessOpened>(events[0].what));
  EXPECT_EQ(std::get<ObjectFreed>(events[1].what).object, 3u);
  ASSERT_EQ(notices_.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<TenantAssigned>(notices_[0].what));
  EXPECT_TRUE(std::holds_alternative<SettingsChanged>(notices_[1].what));
  EXPECT_TRUE(module_.is_empty());
  EXPECT_EQ(observer_->dropped(), 0u);
}

TEST_F(KmodObserverTest, PassesOverWhatWasThereAndHasTheLivingReplayed) {
  module_.push(freed(1));  // for an agent that died
  module_.replayed = {kmod_opened("a")};
  start();
  EXPECT_TRUE(drain().empty());
  ASSERT_TRUE(observer_->replay());
  EXPECT_EQ(module_.count(GPUSHARE_IOC_REPLAY), 1u);
  const auto events = drain();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<ProcessOpened>(events[0].what));
}

TEST_F(KmodObserverTest, TheRingGoesRound) {
  start();
  for (uint32_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(module_.push(freed(i)));
    if (i % 5 != 4) continue;
    const auto events = drain();
    ASSERT_EQ(events.size(), 5u);
    EXPECT_EQ(std::get<ObjectFreed>(events[4].what).object, i);
  }
}

TEST_F(KmodObserverTest, LossesAreReportedOnceAndLast) {
  start();
  for (uint32_t i = 0; i < 8; ++i) module_.push(freed(i));
  EXPECT_FALSE(module_.push(freed(8)));
  EXPECT_FALSE(module_.push(freed(9)));
  const auto events = drain();
  ASSERT_EQ(events.size(), 9u);
  EXPECT_EQ(std::get<EventsLost>(events.back().what).count, 2u);
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<NoticesLost>(notices_[0].what));
  EXPECT_EQ(observer_->dropped(), 2u);
  EXPECT_TRUE(drain().empty());
  EXPECT_EQ(notices_.size(), 1u);
}

TEST_F(KmodObserverTest, LossesBeforeItAreNotIts) {
  for (uint32_t i = 0; i < 10; ++i) module_.push(freed(i));
  start();
  EXPECT_TRUE(drain().empty());
  EXPECT_EQ(observer_->dropped(), 0u);
}

TEST_F(KmodObserverTest, AModuleThatWritesMeanwhileIsReadInOrderAndWhole) {
  start();
  constexpr uint32_t kCount = 4'000;
  std::thread module([this] {
    // A full ring counts a loss; the module here then tries again.
    for (uint32_t i = 1; i <= kCount;)
      if (module_.push(freed(i)))
        ++i;
      else
        std::this_thread::yield();
  });
  uint32_t seen = 0;
  bool is_in_order = true;
  while (seen < kCount) {
    const auto events = drain();
    if (events.empty()) std::this_thread::yield();
    for (const DriverEvent& event : events)
      if (const auto* what = std::get_if<ObjectFreed>(&event.what))
        is_in_order = (what->object == ++seen) && is_in_order;
  }
  module.join();
  EXPECT_TRUE(is_in_order);
}

TEST_F(KmodObserverTest, AModuleOfAnotherVersionIsNotUsed) {
  module_.query.uapi_version = GPUSHARE_UAPI_VERSION + 1;
  const auto started = KmodObserver::start(module_);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, std::errc::protocol_not_supported);
  EXPECT_NE(started.error().message().find("gpushare.ko 9.9 speaks version " +
                                           std::to_string(GPUSHARE_UAPI_VERSION + 1)),
            std::string::npos);
  EXPECT_EQ(module_.calls.size(), 1u) << "nothing else is said to it";
}

TEST_F(KmodObserverTest, ALayoutThatDoesNotFitIsRefused) {
  module_.query.records_bytes -= 1;
  EXPECT_EQ(KmodObserver::start(module_).error().code, std::errc::bad_message);
  module_.query.records_bytes += 1;
  module_.query.record_count = 7;
  EXPECT_FALSE(KmodObserver::start(module_));
}

TEST_F(KmodObserverTest, AFailedReplayIsAnError) {
  start();
  module_.fails = GPUSHARE_IOC_REPLAY;
  module_.error = ENOMEM;
  EXPECT_EQ(observer_->replay().error().code, std::errc::not_enough_memory);
}

TEST_F(KmodObserverTest, ReportsTheEndOfAWatchedProcess) {
  start();
  const ProcessId process = watched_child();
  EXPECT_TRUE(drain().empty());
  kill_child(process);
  EXPECT_TRUE(is_readable(10'000));
  const auto events = drain();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<ProcessClosed>(events[0].what));
  EXPECT_EQ(events[0].process, process);
  EXPECT_FALSE(is_readable());
  EXPECT_EQ(observer_->watch(process).error().code, std::errc::no_such_process);
}

TEST_F(KmodObserverTest, WhoHasCalledTheDriverIsTheModulesToReport) {
  start();
  const ProcessId process = watched_child();
  module_.push(kmod_opened("a", process.pid, process.start_ticks));
  EXPECT_EQ(drain().size(), 1u);
  kill_child(process);
  EXPECT_TRUE(drain().empty());
}

TEST_F(KmodObserverTest, AnEndIsReportedOnceWhoeverSawIt) {
  start();
  const ProcessId process = watched_child();
  kill_child(process);
  gpushare_event closed = kmod_record(GPUSHARE_EVENT_PROCESS_CLOSED);
  closed.pid = static_cast<uint32_t>(process.pid);
  closed.start_ticks = process.start_ticks;
  module_.push(closed);
  EXPECT_EQ(drain().size(), 1u);
  EXPECT_TRUE(drain().empty());
}

TEST(KmodDevice, SaysWhatIsMissing) {
  const auto none = kmod::open_device("/nonexistent/gpushare");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, std::errc::no_such_file_or_directory);
  EXPECT_NE(none.error().message().find("not loaded"), std::string::npos);
  const auto other = kmod::open_device("/dev/null");  // a device, but not ours
  ASSERT_TRUE(other);
  EXPECT_EQ(kmod::query(**other).error().code, std::errc::inappropriate_io_control_operation);
}

TEST(KmodCalls, PublishesAnyNumberOfTenants) {
  FakeKmod module;
  std::vector<kmod::TenantUsage> usages(GPUSHARE_PUBLISH_MAX + 1);
  kmod::TenantUsage& used = usages[0];
  used.tenant = "a";
  used.gpu_time = Micros(5);
  used.throttled = Micros(6);
  used.freezes = 7;
  used.periods = 9;
  used.throttled_periods = 8;
  used.turns = 3;
  used.held = Micros(2);
  used.some.total = Micros(11);
  used.full.total = Micros(10);
  used.by_gpu[3] = Micros(4);
  used.share_permille = 250;
  usages.back().tenant = std::string(200, 'x');
  ASSERT_TRUE(kmod::publish(module, usages));
  ASSERT_EQ(module.published.size(), 2u);
  ASSERT_EQ(module.published[0].size(), size_t{GPUSHARE_PUBLISH_MAX});
  const gpushare_usage& first = module.published[0][0];
  EXPECT_STREQ(first.tenant, "a");
  EXPECT_EQ(first.gpu_time_us, 5u);
  EXPECT_EQ(first.throttled_us, 6u);
  EXPECT_EQ(first.freezes, 7u);
  EXPECT_EQ(first.periods, 9u);
  EXPECT_EQ(first.throttled_periods, 8u);
  EXPECT_EQ(first.turns, 3u);
  EXPECT_EQ(first.held_us, 2u);
  EXPECT_EQ(first.some.total_us, 11u);
  EXPECT_EQ(first.full.total_us, 10u);
  EXPECT_EQ(first.by_gpu_us[3], 4u);
  EXPECT_EQ(first.share_permille, 250u);
  ASSERT_EQ(module.published[1].size(), 1u);
  EXPECT_EQ(module.published[1][0].share_permille, GPUSHARE_UNKNOWN);
  EXPECT_EQ(std::strlen(module.published[1][0].tenant), 63u);
  EXPECT_TRUE(kmod::publish(module, {}));
  EXPECT_EQ(module.published.size(), 2u) << "nothing to say, nothing said";
}

TEST(KmodCalls, DescribesGpusAndPolicy) {
  FakeKmod module;
  ASSERT_TRUE(kmod::set_gpu(module,
                            {.index = 0,
                             .instance = 3,
                             .uuid = "GPU-1",
                             .name = "H200",
                             .pci = "",
                             .sm_count = 0,
                             .memory_bytes = 1 << 20},
                            "time-slicing", "srtf"));
  ASSERT_EQ(module.gpus.size(), 1u);
  EXPECT_EQ(module.gpus[0].index, 3u);
  EXPECT_EQ(module.gpus[0].sm_count, GPUSHARE_UNKNOWN);
  EXPECT_STREQ(module.gpus[0].uuid, "GPU-1");
  EXPECT_STREQ(module.gpus[0].sharing, "time-slicing");
  EXPECT_STREQ(module.gpus[0].policy, "srtf");
  ASSERT_TRUE(kmod::set_policy(module, "fair"));
  EXPECT_EQ(module.policy, "fair");
}

}  // namespace
}  // namespace gpushare
