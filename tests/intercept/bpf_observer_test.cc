// SPDX-License-Identifier: Apache-2.0
// The probe and its observer on real system calls: child processes make RM ioctls on a FUSE file
// that answers them (bpf_fake_driver.h). Needs root and a kernel with BTF; skips where they are
// missing.
#include "intercept/bpf/observer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <thread>

#include "shmctl/base/proc_stat.h"
#include "tests/intercept/bpf_fake_driver.h"

namespace gpushare {
namespace {

constexpr uint32_t kHopperChannel = 0xC86F;
constexpr uint32_t kComputeClass = 0xCBC0;  // an object that is of no interest

// A child process that runs `body` when told to go and then exits. Killed if the test ends first.
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) std::abort();
    const Fd wait_end(fds[0]);
    Fd go_end(fds[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      go_end.reset();
      char byte = 0;
      if (::read(wait_end.get(), &byte, 1) < 0) ::_exit(2);
      body();
      ::_exit(0);
    }
    go_ = std::move(go_end);
    process_ = {pid_, start_ticks_of(pid_)};
  }
  Child(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  void go() { go_.reset(); }
  // Runs it to its end; its exit status.
  int finish() {
    go();
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  ProcessId process() const { return process_; }

 private:
  pid_t pid_ = 0;
  ProcessId process_;
  Fd go_;
};

// One line per event, for comparison with what was done. Pids are left out: see `from`.
std::string describe(const DriverEvent& event) {
  struct Text {
    std::ostringstream out;
    void operator()(const ProcessOpened&) { out << "opened"; }
    void operator()(const ClientCreated& e) { out << "client " << e.client << " fd " << e.fd; }
    void operator()(const DeviceCreated& e) {
      out << "device " << e.device << " instance " << e.instance;
    }
    void operator()(const GroupCreated& e) {
      out << "group " << e.group << " on " << e.device << " engine " << int(e.engine) << " fd "
          << e.fd;
    }
    void operator()(const ChannelCreated& e) {
      out << "channel " << e.channel << " in " << e.parent << " class " << e.class_id;
    }
    void operator()(const MemoryAllocated& e) {
      out << "memory " << e.memory << " bytes " << e.bytes << (e.is_video ? " video" : " system");
    }
    void operator()(const ObjectFreed& e) { out << "freed " << e.object; }
    void operator()(const ControlMade& e) {
      out << "control " << e.command << " on " << e.object << " value " << e.value;
    }
    void operator()(const ProcessClosed& e) { out << (e.by_exec ? "closed by exec" : "closed"); }
    void operator()(const EventsLost&) { out << "lost"; }
  } text;
  std::visit(text, event.what);
  return text.out.str();
}

class BpfObserverTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (::geteuid() != 0) return;
    if (Result<FakeDriver> mounted = FakeDriver::mount())
      driver_.emplace(std::move(*mounted));
    else
      missing_ = mounted.error().message();
  }
  static void TearDownTestSuite() { driver_.reset(); }

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    if (::access("/sys/kernel/btf/vmlinux", R_OK) != 0) GTEST_SKIP() << "needs a kernel with BTF";
    if (!driver_) GTEST_SKIP() << "needs FUSE: " << missing_;
    start({.accept_any_file = true});
  }

  void start(const ProbeOptions& options) {
    observer_.reset();
    Result<std::unique_ptr<BpfObserver>> started = BpfObserver::start(options);
    ASSERT_TRUE(started) << started.error().message();
    observer_ = std::move(*started);
  }

  void drain() {
    const Result<uint64_t> count =
        observer_->drain([&](DriverEvent&& event) { events_.push_back(std::move(event)); });
    ASSERT_TRUE(count) << count.error().message();
  }

  // Collects events until `process` has closed. False if that does not happen in 20 s.
  bool drain_until_closed(ProcessId process) {
    const auto has_closed = [&] {
      return std::ranges::any_of(events_, [&](const DriverEvent& event) {
        return event.process == process && std::holds_alternative<ProcessClosed>(event.what);
      });
    };
    for (drain(); !has_closed(); drain()) {
      pollfd ready{observer_->fd(), POLLIN, 0};
      if (::poll(&ready, 1, 20'000) <= 0) return false;
    }
    return true;
  }

  std::vector<std::string> from(ProcessId process) const {
    std::vector<std::string> lines;
    for (const DriverEvent& event : events_)
      if (event.process == process) lines.push_back(describe(event));
    return lines;
  }

  template <class T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const DriverEvent& event : events_)
      if (const T* what = std::get_if<T>(&event.what)) found.push_back(*what);
    return found;
  }

  static std::optional<FakeDriver> driver_;
  static std::string missing_;
  std::unique_ptr<BpfObserver> observer_;
  std::vector<DriverEvent> events_;
};
std::optional<FakeDriver> BpfObserverTest::driver_;
std::string BpfObserverTest::missing_ = "root";

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(BpfObserverTest, ReportsWhatAProgramCreatesInOrder) {
  const Fd file = driver_->open();
  const int fd = file.get();
  Child child([fd] {
    gs_device_params device_params{};
    device_params.device_id = 3;
    gs_group_params group_params{};
    group_params.engine_type = GS_ENGINE_TYPE_GR0;
    gs_memory_params memory_params{};
    memory_params.size = 2u << 20;
    gs_timeslice slice{2048};
    rm_alloc(fd, 0, 0, GS_CLASS_ROOT_CLIENT, nullptr, 0, 1000);
    rm_alloc(fd, 1000, 1000, GS_CLASS_DEVICE, &device_params, sizeof device_params, 1);
    rm_alloc(fd, 1000, 1, GS_CLASS_SUBDEVICE, nullptr, 0, 2);
    rm_alloc(fd, 1000, 1, GS_CLASS_CHANNEL_GROUP, &group_params, sizeof group_params, 3);
    rm_alloc(fd, 1000, 3, kHopperChannel, nullptr, 0, 4);
    rm_alloc(fd, 1000, 4, kComputeClass, nullptr, 0, 5);
    rm_control(fd, 1000, 3, GS_CTRL_SET_TIMESLICE, &slice, sizeof slice);
    rm_alloc(fd, 1000, 1, GS_CLASS_MEMORY_LOCAL_USER, &memory_params, sizeof memory_params, 6);
    rm_alloc(fd, 1000, 1, GS_CLASS_MEMORY_SYSTEM, &memory_params, sizeof memory_params, 7);
    rm_free(fd, 1000, 3);
    rm_free(fd, 1000, 1000);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  const std::string at = " fd " + std::to_string(fd);
  EXPECT_THAT(from(child.process()),
              ElementsAre("opened", "client 1000" + at, "device 1 instance 3",
                          "group 3 on 1 engine 0" + at, "channel 4 in 3 class 51311",
                          "control 2691432707 on 3 value 2048", "memory 6 bytes 2097152 video",
                          "memory 7 bytes 2097152 system", "freed 3", "freed 1000", "closed"));
  EXPECT_EQ(observer_->dropped(), 0u);
}

TEST_F(BpfObserverTest, ReadsHandlesAsTheDriverFilledThemIn) {
  const Fd file = driver_->open();
  Child child([fd = file.get()] {
    const auto client = rm_alloc(fd, 0, 0, GS_CLASS_ROOT);
    gs_group_params params{.h_error = 0,
                           .h_ecc_error = 0,
                           .h_va_space = 0,
                           .engine_type = GS_ENGINE_TYPE_COPY0,
                           .is_vgpu_plugin = 0,
                           .pad = {}};
    const auto group = rm_alloc_nvos21(fd, client.handle, 9, GS_CLASS_CHANNEL_GROUP, &params);
    rm_free(fd, client.handle, client.handle);
    rm_free(fd, client.handle, group.handle);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(all<ClientCreated>(), SizeIs(1));
  ASSERT_THAT(all<GroupCreated>(), SizeIs(1));
  ASSERT_THAT(all<ObjectFreed>(), SizeIs(2));
  EXPECT_NE(all<ClientCreated>()[0].client, 0u);
  EXPECT_EQ(all<ClientCreated>()[0].client, all<ObjectFreed>()[0].object);
  EXPECT_EQ(all<GroupCreated>()[0].group, all<ObjectFreed>()[1].object);
  EXPECT_EQ(all<GroupCreated>()[0].engine, Engine::kCopy);
}

TEST_F(BpfObserverTest, FollowsTheCommandInsideATransfer) {
  const Fd file = driver_->open();
  Child child([fd = file.get()] {
    // The fake driver leaves the inner argument as it is: here, an answered allocation.
    gs_nvos64 inner{};
    inner.h_root = 7;
    inner.h_new = 8;
    inner.h_class = kHopperChannel;
    gs_nv_xfer outer{GS_NV_ESC_RM_ALLOC, sizeof inner, reinterpret_cast<uintptr_t>(&inner)};
    rm_call(fd, GS_NV_ESC_IOCTL_XFER_CMD, &outer, sizeof outer);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(all<ChannelCreated>(), SizeIs(1));
  EXPECT_EQ(all<ChannelCreated>()[0].channel, 8u);
}

TEST_F(BpfObserverTest, SeesThroughAnotherTypeByte) {
  const Fd file = driver_->open();
  Child child([fd = file.get()] {
    gs_nvos64 arg{};
    arg.h_class = kHopperChannel;
    if (::ioctl(fd, _IOWR('G', GS_NV_ESC_RM_ALLOC, gs_nvos64), &arg) != 0) ::_exit(1);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  EXPECT_THAT(all<ChannelCreated>(), SizeIs(1));
}

TEST_F(BpfObserverTest, AFailedAllocationCreatesNothing) {
  const Fd file = driver_->open();
  Child child([fd = file.get()] {
    if (rm_alloc(fd, 1, 1, GS_CLASS_ROOT, nullptr, 0, FakeDriver::kRefusedHandle).status ==
        GS_NV_OK)
      ::_exit(1);
    // Parameters that cannot be read are a reason to refuse, not a lost event.
    auto* const nowhere = reinterpret_cast<void*>(8);
    rm_alloc(fd, 1, 1, GS_CLASS_CHANNEL_GROUP, nowhere, 20, FakeDriver::kRefusedHandle);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  EXPECT_THAT(from(child.process()), ElementsAre("opened", "closed"));
  EXPECT_EQ(observer_->dropped(), 0u);
}

TEST_F(BpfObserverTest, ParametersThatVanishedAreCountedAsLost) {
  const Fd file = driver_->open();
  Child child([fd = file.get()] {
    rm_alloc(fd, 1, 1, GS_CLASS_CHANNEL_GROUP, reinterpret_cast<void*>(8), 20);
    rm_free(fd, 1, 1);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  EXPECT_THAT(from(child.process()), ElementsAre("opened", "freed 1", "closed"));
  EXPECT_EQ(observer_->dropped(), 1u);
}

TEST_F(BpfObserverTest, IgnoresWhatIsNotACallOfInterest) {
  const Fd file = driver_->open();
  Child child([fd = file.get()] {
    int bytes = 0;
    int pipe_fds[2];
    if (::pipe(pipe_fds) != 0 || ::ioctl(pipe_fds[0], FIONREAD, &bytes) != 0) ::_exit(1);
    char buffer[64] = {};
    rm_call(fd, GS_NV_ESC_RM_MAP_MEMORY, buffer, sizeof(gs_nvos33_fd));  // another command
    rm_call(fd, GS_NV_ESC_RM_FREE, buffer, 20);                          // a size RM does not take
    ::ioctl(fd, _IOWR('F', GS_NV_ESC_CARD_INFO, int), buffer);           // fails
    rm_alloc(fd, 1, 1, kComputeClass);                                   // another class
    rm_control(fd, 1, 1, GS_CTRL_GPU_GET_ID, buffer, 4);                 // another control
  });
  EXPECT_EQ(child.finish(), 0);
  Child marker([fd = file.get()] { rm_free(fd, 1, 1); });
  EXPECT_EQ(marker.finish(), 0);
  ASSERT_TRUE(drain_until_closed(marker.process()));
  EXPECT_THAT(from(child.process()), IsEmpty());
  EXPECT_THAT(events_, SizeIs(3)) << "opened, freed and closed of the marker only";
}

TEST_F(BpfObserverTest, WithoutTheTestKnobOnlyTheDriversDevicesCount) {
  start({});
  const Fd file = driver_->open();
  Child child([fd = file.get()] { rm_alloc(fd, 0, 0, GS_CLASS_ROOT); });
  EXPECT_EQ(child.finish(), 0);
  drain();
  EXPECT_THAT(events_, IsEmpty());
}

TEST_F(BpfObserverTest, DoesNotHearItself) {
  const Fd file = driver_->open();
  rm_alloc(file.get(), 0, 0, GS_CLASS_ROOT);
  drain();
  EXPECT_THAT(events_, IsEmpty());
}

TEST_F(BpfObserverTest, NamesProcessAsProcAndCgroupDo) {
  const Fd file = driver_->open();
  Child child([fd = file.get()] { rm_alloc(fd, 0, 0, GS_CLASS_ROOT); });
  EXPECT_EQ(child.finish(), 0);
  // The identity compared here, pid and start ticks, comes from /proc/PID/stat.
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(all<ProcessOpened>(), SizeIs(1));
  const ProcessOpened opened = all<ProcessOpened>()[0];
  EXPECT_EQ(opened.ns_pid, child.process().pid);
  EXPECT_EQ(opened.uid, 0u);
  std::string comm;
  std::getline(std::ifstream("/proc/self/comm") >> std::ws, comm);
  EXPECT_EQ(opened.command, comm);
  const Time now = MonotonicClock().now();
  EXPECT_LE(events_.front().time, now);
  EXPECT_GT(events_.front().time, now - std::chrono::seconds(60));
}

// Inode of this process's cgroup v2 directory; 0 where there is none.
uint64_t own_cgroup_id() {
  std::string mount_point;
  std::ifstream mounts("/proc/self/mounts");
  for (std::string device, where, type, rest; mounts >> device >> where >> type;) {
    std::getline(mounts, rest);
    if (type == "cgroup2") mount_point = where;
  }
  std::ifstream cgroups("/proc/self/cgroup");
  for (std::string line; std::getline(cgroups, line);) {
    struct stat info{};
    if (line.starts_with("0::") && ::stat((mount_point + line.substr(3)).c_str(), &info) == 0)
      return info.st_ino;
  }
  return 0;
}

TEST_F(BpfObserverTest, NamesTheCgroup) {
  const uint64_t expected = own_cgroup_id();
  if (expected == 0) GTEST_SKIP() << "needs cgroup v2";
  const Fd file = driver_->open();
  Child child([fd = file.get()] { rm_alloc(fd, 0, 0, GS_CLASS_ROOT); });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(all<ProcessOpened>(), SizeIs(1));
  EXPECT_EQ(all<ProcessOpened>()[0].cgroup_id, expected);
}

TEST_F(BpfObserverTest, GivesBothPidsOfAContainersProcess) {
  const Fd file = driver_->open();
  Child child([fd = file.get()] {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(1);
    const pid_t inner = ::fork();
    if (inner == 0) {
      if (::getpid() != 1) ::_exit(1);
      // The handle carries the inner process's pid in our namespace to the test.
      rm_alloc(fd, 0, 0, GS_CLASS_ROOT);
      ::_exit(0);
    }
    int status = 1;
    ::waitpid(inner, &status, 0);
    rm_free(fd, static_cast<uint32_t>(inner), 1);
    ::_exit(status);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(all<ObjectFreed>(), SizeIs(1));
  const auto inner_pid = static_cast<pid_t>(all<ObjectFreed>()[0].client);
  ASSERT_THAT(all<ProcessOpened>(), SizeIs(2));
  EXPECT_EQ(all<ProcessOpened>()[0].ns_pid, 1);
  EXPECT_EQ(events_[0].process.pid, inner_pid);
  EXPECT_THAT(from(events_[0].process), SizeIs(3)) << "opened, client, closed";
}

TEST_F(BpfObserverTest, ExecClosesAProcessAndItsExitIsThenNews) {
  const Fd file = driver_->open();
  Child child([fd = file.get()] {
    rm_free(fd, 1, 1);
    ::execl("/bin/true", "true", nullptr);
    ::_exit(1);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  drain();
  EXPECT_THAT(from(child.process()), ElementsAre("opened", "freed 1", "closed by exec"));
}

// Returns when the main thread of this process has ended (state Z) and others go on.
void wait_for_end_of_main_thread() {
  for (std::string text; text.find(") Z ") == std::string::npos; std::this_thread::yield()) {
    text.clear();
    std::getline(std::ifstream("/proc/self/stat") >> std::ws, text);
  }
}

TEST_F(BpfObserverTest, AProcessLivesUntilItsLastThreadEnds) {
  const Fd file = driver_->open();
  Child child([fd = file.get()] {
    rm_free(fd, 1, 1);
    std::thread([fd] {
      wait_for_end_of_main_thread();
      rm_free(fd, 1, 2);
      ::_exit(0);
    }).detach();
    ::syscall(SYS_exit, 0);  // this thread only
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  drain();
  EXPECT_THAT(from(child.process()), ElementsAre("opened", "freed 1", "freed 2", "closed"));
}

TEST_F(BpfObserverTest, WatchedProcessesAreClosedWithoutBeingOpened) {
  Child child([] {});
  ASSERT_TRUE(observer_->watch(child.process()));
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  EXPECT_THAT(from(child.process()), ElementsAre("closed"));

  const Result<> late = observer_->watch(child.process());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, std::errc::no_such_process);
}

TEST_F(BpfObserverTest, CountsWhatAFullRingCouldNotTake) {
  start({.ring_bytes = 4096, .accept_any_file = true});
  constexpr uint32_t kCalls = 100;
  const Fd file = driver_->open();
  Child child([fd = file.get()] {
    for (uint32_t i = 0; i < kCalls; ++i) rm_free(fd, 1, i);
  });
  EXPECT_EQ(child.finish(), 0);
  ASSERT_TRUE(drain_until_closed(child.process()));
  ASSERT_THAT(all<EventsLost>(), SizeIs(1));
  EXPECT_EQ(all<EventsLost>()[0].count, observer_->dropped());
  const size_t seen = all<ObjectFreed>().size();
  EXPECT_GT(seen, 0u);
  EXPECT_GT(observer_->dropped(), 0u);
  EXPECT_EQ(seen + observer_->dropped(), kCalls) << "the exit is shorter and still fits";
  EXPECT_TRUE(std::holds_alternative<EventsLost>(events_.back().what));
}

TEST_F(BpfObserverTest, FindsOutAboutAnExitThatWasLost) {
  start({.ring_bytes = 4096, .accept_any_file = true});
  const Fd file = driver_->open();
  Child early([fd = file.get()] {
    rm_free(fd, 1, 1);
    ::raise(SIGSTOP);
  });
  early.go();
  ASSERT_EQ(::waitpid(early.process().pid, nullptr, WUNTRACED), early.process().pid);
  // Fill the ring to the last byte: long records first, then exits only.
  for (int i = 0; i < 8; ++i) {
    Child filler([fd = file.get()] {
      for (uint32_t n = 0; n < 20; ++n) rm_free(fd, 1, n);
    });
    EXPECT_EQ(filler.finish(), 0);
  }
  ::kill(early.process().pid, SIGCONT);
  EXPECT_EQ(early.finish(), 0);
  drain();
  EXPECT_THAT(from(early.process()), ElementsAre("opened", "freed 1", "closed"));
  EXPECT_TRUE(std::holds_alternative<EventsLost>(events_.back().what));
}

struct Crowd {
  const char* description;
  int processes, threads;
};

class BpfObserverCrowdTest : public BpfObserverTest, public ::testing::WithParamInterface<Crowd> {};

TEST_P(BpfObserverCrowdTest, SeesEveryObjectInOrderOfItsThread) {
  constexpr uint32_t kObjects = 1000;
  const auto [description, processes, threads] = GetParam();
  const Fd file = driver_->open();
  std::vector<std::unique_ptr<Child>> children;
  for (int p = 0; p < processes; ++p) {
    children.push_back(std::make_unique<Child>([fd = file.get(), count = threads] {
      std::vector<std::thread> workers;
      for (int t = 0; t < count; ++t)
        workers.emplace_back([fd, t] {
          for (uint32_t i = 1; i <= kObjects; ++i)
            rm_alloc(fd, 1, static_cast<uint32_t>(t), kHopperChannel, nullptr, 0, i);
        });
      for (std::thread& worker : workers) worker.join();
    }));
  }
  for (auto& child : children) child->go();
  for (auto& child : children) ASSERT_TRUE(drain_until_closed(child->process()));
  for (auto& child : children) EXPECT_EQ(child->finish(), 0);

  std::map<std::pair<ProcessId, uint32_t>, uint32_t> last;
  for (const DriverEvent& event : events_) {
    const auto* made = std::get_if<ChannelCreated>(&event.what);
    if (made == nullptr) continue;
    ASSERT_EQ(made->channel, ++last[std::pair(event.process, made->parent)]);
  }
  EXPECT_THAT(last, SizeIs(processes * threads));
  for (const auto& [who, count] : last) EXPECT_EQ(count, kObjects);
  EXPECT_EQ(observer_->dropped(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Crowds, BpfObserverCrowdTest,
                         ::testing::Values(Crowd{"threads", 1, 8}, Crowd{"processes", 4, 2}),
                         [](const auto& crowd) { return crowd.param.description; });

}  // namespace
}  // namespace gpushare
