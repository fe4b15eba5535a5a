// SPDX-License-Identifier: Apache-2.0
// kmod_device tries /dev/gpushare on the live module and the stand-in driver: every rejected input
// of every ioctl, the mappings, the stream. It runs in the guest of tests/kernel, as root, beside
// rm_client.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kmod/uapi/gpushare.h"

namespace {

const std::string kTree = GPUSHARE_SYSFS_PATH "/";

std::string attribute(const std::string& path) {
  std::ifstream file(kTree + path);
  std::stringstream text;
  text << file.rdbuf();
  std::string value = text.str();
  if (value.ends_with('\n')) value.pop_back();
  return value;
}

int write_attribute(const std::string& path, std::string_view value) {
  const int fd = ::open((kTree + path).c_str(), O_WRONLY);
  if (fd < 0) return errno;
  const int error = ::write(fd, value.data(), value.size()) < 0 ? errno : 0;
  ::close(fd);
  return error;
}

// Waits until it is so, for at most five seconds. Returns whether it is.
bool eventually(const std::function<bool()>& is_so) {
  for (int i = 0; i < 500; ++i) {
    if (is_so()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return is_so();
}

// A program that uses the driver. It is killed in the end.
class Program {
 public:
  explicit Program(std::vector<std::string> words) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    std::vector<char*> arguments = {const_cast<char*>("rm_client")};
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int quiet = ::open("/dev/null", O_RDWR);
    ::dup2(quiet, 1);
    ::execv("/test/rm_client", arguments.data());
    ::_exit(127);
  }
  ~Program() {
    if (pid_ > 0) end();
  }
  Program(const Program&) = delete;
  pid_t pid() const { return pid_; }
  int end(int signal = SIGKILL) {
    ::kill(pid_, signal);
    return wait();
  }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_;
};

class Device : public testing::Test {
 protected:
  void SetUp() override {
    fd_ = ::open(GPUSHARE_DEVICE_PATH, O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd_, 0) << strerror(errno);
    query_ = {};
    ASSERT_EQ(call(GPUSHARE_IOC_QUERY, &query_), 0);
    producer_ = static_cast<const gpushare_producer*>(
        map(query_.producer_offset, query_.producer_bytes, PROT_READ));
    consumer_ = static_cast<gpushare_consumer*>(
        map(query_.consumer_offset, query_.consumer_bytes, PROT_READ | PROT_WRITE));
    records_ = static_cast<const gpushare_event*>(
        map(query_.records_offset, query_.records_bytes, PROT_READ));
    ASSERT_TRUE(producer_ && consumer_ && records_);
  }
  void TearDown() override {
    ::munmap(const_cast<gpushare_producer*>(producer_), query_.producer_bytes);
    ::munmap(consumer_, query_.consumer_bytes);
    ::munmap(const_cast<gpushare_event*>(records_), query_.records_bytes);
    ::close(fd_);
  }

  // Returns 0 or the errno.
  int call(unsigned long request, void* argument) {
    return ::ioctl(fd_, request, argument) == 0 ? 0 : errno;
  }
  void* map(uint64_t offset, uint64_t bytes, int protection, int flags = MAP_SHARED) {
    void* at = ::mmap(nullptr, bytes, protection, flags, fd_, static_cast<off_t>(offset));
    return at == MAP_FAILED ? nullptr : at;
  }
  std::vector<gpushare_event> drain() {
    std::vector<gpushare_event> events;
    const uint64_t head = __atomic_load_n(&producer_->head, __ATOMIC_ACQUIRE);
    uint64_t tail = consumer_->tail;
    for (; tail != head; ++tail) events.push_back(records_[tail % query_.record_count]);
    __atomic_store_n(&consumer_->tail, tail, __ATOMIC_RELEASE);
    return events;
  }
  // Returns all events up to the first that fits.
  std::vector<gpushare_event> drain_until(
      const std::function<bool(const gpushare_event&)>& is_last) {
    std::vector<gpushare_event> all;
    eventually([&] {
      const auto some = drain();
      all.insert(all.end(), some.begin(), some.end());
      return std::ranges::any_of(all, is_last);
    });
    EXPECT_TRUE(std::ranges::any_of(all, is_last)) << "of " << all.size() << " events";
    return all;
  }
  static auto kind_is(uint32_t kind) {
    return [kind](const gpushare_event& event) { return event.kind == kind; };
  }
  static size_t count(const std::vector<gpushare_event>& events, uint32_t kind) {
    return static_cast<size_t>(std::ranges::count(events, kind, &gpushare_event::kind));
  }

  int fd_ = -1;
  gpushare_query query_{};
  const gpushare_producer* producer_ = nullptr;
  gpushare_consumer* consumer_ = nullptr;
  const gpushare_event* records_ = nullptr;
};

TEST_F(Device, SaysItsVersionAndSizes) {
  EXPECT_EQ(query_.uapi_version, static_cast<uint32_t>(GPUSHARE_UAPI_VERSION));
  EXPECT_EQ(query_.record_bytes, sizeof(gpushare_event));
  EXPECT_EQ(query_.record_count & (query_.record_count - 1), 0u);
  EXPECT_EQ(query_.records_bytes, uint64_t{query_.record_count} * query_.record_bytes);
  EXPECT_EQ(attribute("version"), query_.module_version);
  EXPECT_EQ(producer_->uapi_version, query_.uapi_version);
}

TEST_F(Device, HasOneOpener) {
  EXPECT_LT(::open(GPUSHARE_DEVICE_PATH, O_RDWR), 0);
  EXPECT_EQ(errno, EBUSY);
}

TEST_F(Device, RefusesWhatItDoesNotKnow) {
  gpushare_query query{};
  query.flags = 1;
  EXPECT_EQ(call(GPUSHARE_IOC_QUERY, &query), EINVAL);
  gpushare_register registration{};
  registration.flags = 1;
  EXPECT_EQ(call(GPUSHARE_IOC_REGISTER, &registration), EINVAL);
  registration = {.flags = 0, .reserved = 1};
  EXPECT_EQ(call(GPUSHARE_IOC_REGISTER, &registration), EINVAL);
  gpushare_replay replay{};
  replay.flags = 1;
  EXPECT_EQ(call(GPUSHARE_IOC_REPLAY, &replay), EINVAL);
  replay = {.flags = 0, .reserved = 1};
  EXPECT_EQ(call(GPUSHARE_IOC_REPLAY, &replay), EINVAL);
  EXPECT_EQ(call(_IO(GPUSHARE_IOC_MAGIC, 6), nullptr), ENOTTY);
  EXPECT_EQ(call(_IOW(GPUSHARE_IOC_MAGIC, 1, char), &replay), ENOTTY);
  for (const unsigned long request :
       {GPUSHARE_IOC_QUERY, GPUSHARE_IOC_REGISTER, GPUSHARE_IOC_REPLAY, GPUSHARE_IOC_PUBLISH,
        GPUSHARE_IOC_SET_GPU, GPUSHARE_IOC_SET_POLICY}) {
    EXPECT_EQ(call(request, nullptr), EFAULT) << std::hex << request;
  }
  EXPECT_EQ(attribute("agent"), "none");
}

TEST_F(Device, RefusesUsagesThatItCannotTake) {
  gpushare_usage usage{};
  std::strcpy(usage.tenant, "default");
  const gpushare_publish good{.usages = reinterpret_cast<uintptr_t>(&usage),
                              .count = 1,
                              .usage_bytes = sizeof usage,
                              .flags = 0,
                              .reserved = 0};
  const auto with = [&](auto change) {
    gpushare_publish request = good;
    change(request);
    return call(GPUSHARE_IOC_PUBLISH, &request);
  };
  EXPECT_EQ(with([](auto&) {}), 0);
  EXPECT_EQ(with([](auto& r) { r.flags = 1; }), EINVAL);
  EXPECT_EQ(with([](auto& r) { r.reserved = 1; }), EINVAL);
  EXPECT_EQ(with([](auto& r) { r.usage_bytes = 64; }), EINVAL);
  EXPECT_EQ(with([](auto& r) { r.count = GPUSHARE_PUBLISH_MAX + 1; }), EINVAL);
  EXPECT_EQ(with([](auto& r) { r.usages = 8; }), EFAULT);
  EXPECT_EQ(with([](auto& r) { r.count = 0; }), 0);
}

TEST_F(Device, PublishedUsageIsShown) {
  ASSERT_EQ(write_attribute("create", "shown"), 0);
  EXPECT_EQ(attribute("tenants/shown/share_permille"), "unknown");
  gpushare_usage usages[3] = {};
  std::strcpy(usages[0].tenant, "nobody");
  std::memset(usages[1].tenant, 'x', sizeof usages[1].tenant);  // not terminated
  std::strcpy(usages[2].tenant, "shown");
  usages[2].gpu_time_us = 1'234'567'890'123;
  usages[2].throttled_us = 5;
  usages[2].freezes = 7;
  usages[2].share_permille = 250;
  gpushare_publish request{reinterpret_cast<uintptr_t>(usages), 3, sizeof usages[0], 0, 0};
  ASSERT_EQ(call(GPUSHARE_IOC_PUBLISH, &request), 0);
  EXPECT_EQ(usages[0].result, -ENOENT);
  EXPECT_EQ(usages[1].result, -ENOENT);
  EXPECT_EQ(usages[2].result, 0);
  EXPECT_EQ(attribute("tenants/shown/gpu_time_us"), "1234567890123");
  EXPECT_EQ(attribute("tenants/shown/throttled_us"), "5");
  EXPECT_EQ(attribute("tenants/shown/freezes"), "7");
  EXPECT_EQ(attribute("tenants/shown/share_permille"), "250");
  EXPECT_EQ(write_attribute("remove", "shown"), 0);
}

// The agent cannot say which GPU it was once that is closed.
TEST_F(Device, AGpuOfWhichNothingIsSaidKeepsItsUse) {
  ASSERT_EQ(write_attribute("create", "kept"), 0);
  gpushare_usage usage{};
  std::strcpy(usage.tenant, "kept");
  usage.by_gpu_us[2] = 30;
  usage.by_gpu_us[5] = 60;
  gpushare_publish request{reinterpret_cast<uintptr_t>(&usage), 1, sizeof usage, 0, 0};
  ASSERT_EQ(call(GPUSHARE_IOC_PUBLISH, &request), 0);
  usage.by_gpu_us[2] = 0;
  usage.by_gpu_us[5] = 61;
  ASSERT_EQ(call(GPUSHARE_IOC_PUBLISH, &request), 0);
  EXPECT_EQ(usage.by_gpu_us[2], 0u) << "what was told is not changed";
  EXPECT_EQ(attribute("tenants/kept/gpu_usage"), "gpu2 30\ngpu5 61");
  EXPECT_EQ(write_attribute("remove", "kept"), 0);
}

TEST_F(Device, AThousandUsagesInOneCall) {
  std::vector<gpushare_usage> usages(GPUSHARE_PUBLISH_MAX);
  for (auto& usage : usages) std::strcpy(usage.tenant, "default");
  usages.back().freezes = 99;
  gpushare_publish request{reinterpret_cast<uintptr_t>(usages.data()),
                           static_cast<uint32_t>(usages.size()), sizeof usages[0], 0, 0};
  EXPECT_EQ(call(GPUSHARE_IOC_PUBLISH, &request), 0);
  EXPECT_EQ(attribute("tenants/default/freezes"), "99");
}

TEST_F(Device, GpusAreShownWhileTheFileIsOpen) {
  gpushare_gpu gpu{};
  gpu.index = 3;
  gpu.sm_count = 132;
  gpu.memory_bytes = 1 << 30;
  std::strcpy(gpu.uuid, "GPU-5f2a");
  std::strcpy(gpu.sharing, "mps");
  std::strcpy(gpu.policy, "srtf");
  ASSERT_EQ(call(GPUSHARE_IOC_SET_GPU, &gpu), 0);
  EXPECT_EQ(attribute("gpus/3/uuid"), "GPU-5f2a");
  EXPECT_EQ(attribute("gpus/3/sm_count"), "132");
  EXPECT_EQ(attribute("gpus/3/memory_bytes"), "1073741824");
  EXPECT_EQ(attribute("gpus/3/sharing"), "mps");
  EXPECT_EQ(attribute("gpus/3/policy"), "srtf");
  gpu.sm_count = GPUSHARE_UNKNOWN;
  ASSERT_EQ(call(GPUSHARE_IOC_SET_GPU, &gpu), 0) << "changes it";
  EXPECT_EQ(attribute("gpus/3/sm_count"), "unknown");
  const auto with = [&](auto change) {
    gpushare_gpu bad = gpu;
    change(bad);
    return call(GPUSHARE_IOC_SET_GPU, &bad);
  };
  EXPECT_EQ(with([](auto& g) { g.index = GPUSHARE_MAX_GPUS; }), EINVAL);
  EXPECT_EQ(with([](auto& g) { g.flags = 1; }), EINVAL);
  EXPECT_EQ(with([](auto& g) { g.reserved = 1; }), EINVAL);
  EXPECT_EQ(with([](auto& g) { std::memset(g.uuid, 'a', sizeof g.uuid); }), EINVAL);
  EXPECT_EQ(with([](auto& g) { g.sharing[0] = '\n'; }), EINVAL);
  EXPECT_EQ(with([](auto& g) { std::memset(g.policy, 'a', sizeof g.policy); }), EINVAL);
  TearDown();
  EXPECT_NE(::access((kTree + "gpus/3").c_str(), F_OK), 0);
  SetUp();
}

TEST_F(Device, ThePolicyIsShownWhileTheFileIsOpen) {
  gpushare_policy policy{};
  std::strcpy(policy.name, "fair");
  ASSERT_EQ(call(GPUSHARE_IOC_SET_POLICY, &policy), 0);
  EXPECT_EQ(attribute("policy"), "fair");
  policy.flags = 1;
  EXPECT_EQ(call(GPUSHARE_IOC_SET_POLICY, &policy), EINVAL);
  policy = {};
  EXPECT_EQ(call(GPUSHARE_IOC_SET_POLICY, &policy), EINVAL) << "no name";
  std::strcpy(policy.name, "a b");
  EXPECT_EQ(call(GPUSHARE_IOC_SET_POLICY, &policy), EINVAL);
  std::memset(policy.name, 'a', sizeof policy.name);
  EXPECT_EQ(call(GPUSHARE_IOC_SET_POLICY, &policy), EINVAL);
  TearDown();
  EXPECT_EQ(attribute("policy"), "none");
  SetUp();
}

TEST_F(Device, OnlyTheAgentsWordMayBeWritten) {
  EXPECT_EQ(map(query_.producer_offset, query_.producer_bytes, PROT_READ | PROT_WRITE), nullptr);
  EXPECT_EQ(map(query_.records_offset, query_.records_bytes, PROT_READ | PROT_WRITE), nullptr);
  void* records = map(query_.records_offset, query_.records_bytes, PROT_READ);
  ASSERT_TRUE(records);
  EXPECT_NE(::mprotect(records, query_.records_bytes, PROT_READ | PROT_WRITE), 0);
  ::munmap(records, query_.records_bytes);
  EXPECT_EQ(map(query_.records_offset, 4096, PROT_READ), nullptr) << "a part";
  EXPECT_EQ(map(query_.producer_offset, 2ull * 4096, PROT_READ), nullptr) << "more";
  EXPECT_EQ(map(query_.records_offset + query_.records_bytes, 4096, PROT_READ), nullptr);
  EXPECT_EQ(map(query_.producer_offset, query_.producer_bytes, PROT_READ, MAP_PRIVATE), nullptr);
}

TEST_F(Device, TellsTheLifeOfAProgram) {
  Program program({"open", "alloc=16", "free", "wait"});
  const pid_t pid = program.pid();
  auto events = drain_until(kind_is(GPUSHARE_EVENT_OBJECT_FREED));
  ASSERT_FALSE(events.empty());
  const gpushare_event& opened = events.front();
  EXPECT_EQ(opened.kind, static_cast<uint32_t>(GPUSHARE_EVENT_PROCESS_OPENED));
  EXPECT_EQ(opened.pid, static_cast<uint32_t>(pid));
  EXPECT_EQ(opened.opened.ns_pid, static_cast<uint32_t>(pid));
  EXPECT_STREQ(opened.opened.comm, "rm_client");
  EXPECT_STREQ(opened.opened.tenant, "default");
  EXPECT_NE(opened.opened.cgroup_id, 0u);
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string field;
  for (int i = 0; i < 22; ++i) stat >> field;
  EXPECT_EQ(std::to_string(opened.start_ticks), field);

  EXPECT_EQ(count(events, GPUSHARE_EVENT_CLIENT_CREATED), 1u);
  EXPECT_EQ(count(events, GPUSHARE_EVENT_DEVICE_CREATED), 1u);
  EXPECT_EQ(count(events, GPUSHARE_EVENT_GROUP_CREATED), 1u);
  EXPECT_EQ(count(events, GPUSHARE_EVENT_CHANNEL_CREATED), 8u);
  EXPECT_EQ(count(events, GPUSHARE_EVENT_CONTROL_MADE), 2u) << "schedule, slice";
  for (const gpushare_event& event : events) {
    switch (event.kind) {
      case GPUSHARE_EVENT_CLIENT_CREATED:
      case GPUSHARE_EVENT_GROUP_CREATED:
        EXPECT_GE(event.object.fd, 0);
        break;
      case GPUSHARE_EVENT_MEMORY_ALLOCATED:
        EXPECT_EQ(event.object.bytes, 16u << 20);
        EXPECT_EQ(event.flags, GPUSHARE_EVENT_VIDEO);
        break;
      case GPUSHARE_EVENT_CONTROL_MADE:
        EXPECT_EQ(event.control.status, 0u);
        EXPECT_EQ(event.flags, 0u);
        break;
      default:
        break;
    }
  }
  program.end();
  events = drain_until(kind_is(GPUSHARE_EVENT_PROCESS_CLOSED));
  EXPECT_EQ(events.back().pid, static_cast<uint32_t>(pid));
  EXPECT_EQ(producer_->lost, 0u);
}

TEST_F(Device, PollWakesAReader) {
  pollfd waiter{fd_, POLLIN, 0};
  EXPECT_EQ(::poll(&waiter, 1, 0), 0);
  std::jthread writer([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    write_attribute("tenants/default/weight", "100");
  });
  EXPECT_EQ(::poll(&waiter, 1, 5000), 1);
  EXPECT_EQ(drain().front().kind, static_cast<uint32_t>(GPUSHARE_EVENT_SETTINGS_CHANGED));
  EXPECT_EQ(::poll(&waiter, 1, 0), 0);
}

TEST_F(Device, TellsOfSettings) {
  ASSERT_EQ(write_attribute("create", "told"), 0);
  ASSERT_EQ(write_attribute("tenants/told/max", "30000 100000\n"), 0);
  EXPECT_EQ(write_attribute("tenants/told/max", "nonsense"), EINVAL);
  ASSERT_EQ(write_attribute("remove", "told"), 0);
  const auto events = drain();
  ASSERT_EQ(events.size(), 3u);
  const uint32_t settings[] = {GPUSHARE_SETTING_CREATED, GPUSHARE_SETTING_MAX,
                               GPUSHARE_SETTING_REMOVED};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i].settings.setting, settings[i]);
    EXPECT_STREQ(events[i].settings.tenant, "told");
    EXPECT_EQ(events[i].pid, 0u);
  }
}

TEST_F(Device, TellsOfRefusals) {
  ASSERT_EQ(write_attribute("create", "small"), 0);
  ASSERT_EQ(write_attribute("tenants/small/memory_max", "8M"), 0);
  ASSERT_EQ(write_attribute("tenants/small/match_uid", "0"), 0);
  {
    Program program({"open", "slice=50000", "sleep=300", "alloc=9", "wait"});
    const auto events = drain_until(kind_is(GPUSHARE_EVENT_MEMORY_REFUSED));
    const auto control = std::ranges::find_if(
        events, [](const auto& event) { return event.flags & GPUSHARE_EVENT_REFUSED; });
    ASSERT_NE(control, events.end());
    EXPECT_EQ(control->control.command, 0xA06C0103u);
    EXPECT_EQ(control->control.status, 0x1Bu);
    const gpushare_event_memory_refused& memory = events.back().memory_refused;
    EXPECT_EQ(memory.bytes, 9u << 20);
    EXPECT_EQ(memory.max_bytes, 8u << 20);
    EXPECT_EQ(memory.current_bytes, 0u);
  }
  EXPECT_EQ(attribute("tenants/small/memory_refused"), "1");
  EXPECT_EQ(attribute("tenants/small/controls_refused"), "1");
  EXPECT_EQ(write_attribute("remove", "small"), 0);
}

TEST_F(Device, RefusalsInALoopDoNotPushOutOthers) {
  std::vector<std::string> words = {"open"};
  words.insert(words.end(), 500, "slice=50000");
  Program program(words);
  program.wait();
  const auto events = drain_until(kind_is(GPUSHARE_EVENT_PROCESS_CLOSED));
  EXPECT_LT(count(events, GPUSHARE_EVENT_CONTROL_MADE), 100u);
}

TEST_F(Device, ReplayTellsWhatIsThere) {
  TearDown();
  Program program({"open", "alloc=16", "wait"});
  ASSERT_TRUE(eventually(
      [] { return attribute("tenants/default/memory_current") == std::to_string(16 << 20); }));
  SetUp();
  EXPECT_TRUE(drain().empty());
  gpushare_replay replay{};
  ASSERT_EQ(call(GPUSHARE_IOC_REPLAY, &replay), 0);
  const auto events = drain();
  EXPECT_EQ(events.size(), 1u + 1 + 1 + 1 + 8 + 1) << "process client device group channels memory";
  for (const gpushare_event& event : events) {
    EXPECT_EQ(event.pid, static_cast<uint32_t>(program.pid()));
    EXPECT_TRUE(event.flags & GPUSHARE_EVENT_REPLAYED);
  }
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.front().kind, static_cast<uint32_t>(GPUSHARE_EVENT_PROCESS_OPENED));
}

TEST_F(Device, ARingThatIsFullCountsWhatItLoses) {
  for (uint32_t i = 0; i < query_.record_count + 10; ++i)
    ASSERT_EQ(write_attribute("tenants/default/weight", "100"), 0);
  EXPECT_EQ(producer_->head, query_.record_count);
  EXPECT_EQ(producer_->lost, 10u);
  EXPECT_EQ(drain().size(), query_.record_count);
  ASSERT_EQ(write_attribute("tenants/default/weight", "100"), 0);
  EXPECT_EQ(drain().size(), 1u);
}

TEST_F(Device, ANonsensicalTailHarmsNobodyButTheReader) {
  consumer_->tail = uint64_t{1} << 63;
  ASSERT_EQ(write_attribute("tenants/default/weight", "100"), 0);
  EXPECT_EQ(producer_->lost, 1u);
  consumer_->tail = producer_->head;
  ASSERT_EQ(write_attribute("tenants/default/weight", "100"), 0);
  EXPECT_EQ(drain().size(), 1u);
}

// What a new program prints when it asks for a longer slice: 0x0 or 0x1b.
std::string answer_to_slice() {
  FILE* output = ::popen("/test/rm_client open slice=50000", "r");
  char line[128] = {};
  std::string answer;
  while (std::fgets(line, sizeof line, output))
    if (const char* at = std::strstr(line, "slice=50000 ")) answer = std::string(at + 12, 4);
  ::pclose(output);
  answer.erase(answer.find_last_not_of('\n') + 1);
  return answer;
}

TEST_F(Device, TheAgentAndItsChildrenAreRefusedNothingAndSayNothing) {
  EXPECT_EQ(answer_to_slice(), "0x1b");
  drain();
  gpushare_register registration{};
  ASSERT_EQ(call(GPUSHARE_IOC_REGISTER, &registration), 0);
  EXPECT_EQ(attribute("agent"), std::to_string(::getpid()));
  EXPECT_EQ(answer_to_slice(), "0x0");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (const gpushare_event& event : drain())
    EXPECT_EQ(event.kind, static_cast<uint32_t>(GPUSHARE_EVENT_PROCESS_CLOSED))
        << "the first one's";
  TearDown();
  EXPECT_EQ(attribute("agent"), "none");
  EXPECT_EQ(answer_to_slice(), "0x1b") << "also when there is no agent";
  SetUp();
}

TEST_F(Device, AttachedProcessesMove) {
  ASSERT_EQ(write_attribute("create", "there"), 0);
  Program program({"open", "alloc=16", "wait"});
  drain_until(kind_is(GPUSHARE_EVENT_MEMORY_ALLOCATED));
  ASSERT_EQ(write_attribute("tenants/there/procs", std::to_string(program.pid())), 0);
  const auto events = drain_until(kind_is(GPUSHARE_EVENT_PROCESS_MOVED));
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.front().pid, static_cast<uint32_t>(program.pid()));
  EXPECT_STREQ(events.front().moved.tenant, "there");
  EXPECT_EQ(attribute("tenants/there/procs"), std::to_string(program.pid()));
  EXPECT_EQ(write_attribute("remove", "there"), 0);
  drain_until([](const gpushare_event& event) {
    return event.kind == GPUSHARE_EVENT_PROCESS_MOVED &&
           std::string_view(event.moved.tenant) == "default";
  });
  EXPECT_EQ(attribute("tenants/default/memory_current"), std::to_string(16 << 20));
}

}  // namespace
