// SPDX-License-Identifier: Apache-2.0
#include "tests/intercept/bpf/observer_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "shmctl/base/proc_stat.h"

namespace gpushare {
namespace {

// Without its process: see `from`.
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
    void operator()(const ChannelsSwitched& e) {
      out << (e.is_freeze ? "froze" : "thawed");
      for (const ChannelRef& ref : e.channels) out << " " << ref.client << "/" << ref.channel;
    }
  } text;
  std::visit(text, event.what);
  return text.out.str();
}

}  // namespace

HeldChild::HeldChild(const std::function<void()>& body) {
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

HeldChild::~HeldChild() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

int HeldChild::finish() {
  go();
  int status = 0;
  ::waitpid(std::exchange(pid_, 0), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::optional<FakeDriver> BpfObserverTest::driver_;
std::string BpfObserverTest::missing_ = "root";

void BpfObserverTest::SetUpTestSuite() {
  if (::geteuid() != 0) return;
  if (Result<FakeDriver> mounted = FakeDriver::mount())
    driver_.emplace(std::move(*mounted));
  else
    missing_ = mounted.error().message();
}

void BpfObserverTest::TearDownTestSuite() { driver_.reset(); }

void BpfObserverTest::SetUp() {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  if (::access("/sys/kernel/btf/vmlinux", R_OK) != 0) GTEST_SKIP() << "needs a kernel with BTF";
  if (!driver_) GTEST_SKIP() << "needs FUSE: " << missing_;
  start({.accept_any_file = true});
}

void BpfObserverTest::start(const ProbeOptions& options) {
  observer_.reset();
  Result<std::unique_ptr<BpfObserver>> started = BpfObserver::start(options, rm_);
  ASSERT_TRUE(started) << started.error().message();
  observer_ = std::move(*started);
}

void BpfObserverTest::drain() {
  // Where very much waits, more is read only when what was examined has been taken. Nothing must
  // come twice: what was read the first time may have been examined just after its look at what has
  // been examined.
  for (int quiet = 0; quiet < 2;) {
    const bool is_idle = !observer_->is_examining();
    const size_t before = events_.size();
    drain_now();
    if (HasFatalFailure()) return;
    quiet = is_idle && events_.size() == before && !observer_->is_examining() ? quiet + 1 : 0;
    pollfd ready{observer_->fd(), POLLIN, 0};
    if (observer_->is_examining()) ::poll(&ready, 1, 1);  // what is found false makes none ready
  }
}

void BpfObserverTest::drain_now() {
  const Result<uint64_t> count =
      observer_->drain([&](DriverEvent&& event) { events_.push_back(std::move(event)); });
  ASSERT_TRUE(count) << count.error().message();
}

bool BpfObserverTest::drain_until_closed(ProcessId process) {
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

std::vector<std::string> BpfObserverTest::from(ProcessId process) const {
  std::vector<std::string> lines;
  for (const DriverEvent& event : events_)
    if (event.process == process) lines.push_back(describe(event));
  return lines;
}

}  // namespace gpushare
