// SPDX-License-Identifier: Apache-2.0
// Tests the server over a real socket in real time: whole round trips, and what the death of a
// process leaves behind. The tests wait for conditions; bounds only end a run that hangs.
#include "intercept/sim/server/server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "intercept/sim/gpu/remote_gpu.h"
#include "intercept/sim/wire/client.h"
#include "intercept/sim/wire/codec.h"
#include "shmctl/program/temp_folder.h"

namespace gpushare::sim {
namespace {

using namespace std::chrono_literals;

constexpr auto kBound = 10s;

template <class Condition>
bool eventually(Condition condition) {
  const Time end = MonotonicClock().now() + kBound;
  while (!condition()) {
    if (MonotonicClock().now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

class SimServer : public testing::Test {
 protected:
  void SetUp() override {
    server_ = Server::listen({.socket = socket_, .gpus = std::vector<GpuModel>(2)}).value();
    thread_ = std::thread([this] { EXPECT_TRUE(server_->run().has_value()); });
  }
  void TearDown() override {
    server_->stop();
    thread_.join();
    server_.reset();
    EXPECT_FALSE(std::filesystem::exists(socket_));
  }

  std::unique_ptr<Client> connect_program() {
    return Client::connect(socket_, Role::kProgram).value();
  }
  Work endless(const ContextReply& context, uint64_t sequence) {
    return {.sequence = sequence,
            .context = context.context,
            .queue = 0,
            .kind = WorkKind::kEndless,
            .direction = Direction::kNone,
            .amount = 0,
            .sm_ppm = 1'000'000,
            .ranks = 0,
            .communicator = 0};
  }
  Work kernel(const ContextReply& context, uint64_t sequence, Nanos time) {
    Work work = endless(context, sequence);
    work.kind = WorkKind::kKernel;
    work.amount = static_cast<uint64_t>(time.count());
    return work;
  }
  static std::vector<ChannelRef> channels(const ContextReply& context) {
    std::vector<ChannelRef> refs;
    for (const uint32_t channel : context.channels) refs.push_back({context.client, channel});
    return refs;
  }

  const TempFolder folder_ = TempFolder::make("gs-sim").value();
  const std::string socket_ = folder_.at("sim.sock");
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

TEST_F(SimServer, AKernelTakesItsTimeAndIsReportedAtItsInstant) {
  auto program = connect_program();
  const auto context = program->create_context(0).value();
  const Time before = MonotonicClock().now();
  ASSERT_TRUE(program->submit(kernel(context, 1, 5ms)).has_value());
  EXPECT_FALSE(program->is_done(1));
  ASSERT_TRUE(program->wait(1).has_value());
  EXPECT_TRUE(program->is_done(1));
  EXPECT_GE(MonotonicClock().now() - before, 5ms);
}

TEST_F(SimServer, CompletionsCarryTheModelsInstants) {
  std::vector<Completion> seen;
  auto program = Client::connect(socket_, Role::kProgram, [&](const Completion& c) {
                   seen.push_back(c);
                 }).value();
  const auto context = program->create_context(0).value();
  for (uint64_t sequence = 1; sequence <= 3; ++sequence)
    ASSERT_TRUE(program->submit(kernel(context, sequence, 2ms)).has_value());
  ASSERT_TRUE(program->wait(3).has_value());
  ASSERT_EQ(seen.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(seen[i].sequence, i + 1);
    EXPECT_EQ(seen[i].finished_ns - seen[i].started_ns, 2'000'000U);
  }
  EXPECT_EQ(seen[1].started_ns, seen[0].finished_ns);
  EXPECT_LE(from_ns(seen[2].finished_ns), MonotonicClock().now());
}

TEST_F(SimServer, ManyThreadsShareOneConnection) {
  auto program = connect_program();
  const auto context = program->create_context(0).value();
  std::vector<std::jthread> threads;
  std::atomic<int> done = 0;
  for (uint64_t thread = 1; thread <= 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint64_t i = 0; i < 20; ++i) {
        Work work = kernel(context, thread * 100 + i, 50us);
        work.queue = static_cast<uint32_t>(thread);
        if (program->submit(work) && program->wait(work.sequence) && program->memory(0).has_value())
          ++done;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(done, 80);
}

TEST_F(SimServer, AFrozenKernelStandsStillUntilAsManyThawsAsFreezes) {
  auto program = connect_program();
  const auto context = program->create_context(0).value();
  ASSERT_TRUE(program->submit(endless(context, 1)).has_value());
  auto gpu = make_sim_gpu(socket_).value();
  const auto all = channels(context);
  const auto executed = [&] { return program->query(1)->executed_ns; };
  ASSERT_TRUE(eventually([&] { return executed() > 0; }));

  const Time begun = MonotonicClock().now();
  ASSERT_TRUE(gpu->freeze(0, all).has_value());
  EXPECT_GE(MonotonicClock().now() - begun, 500us) << "takes what the driver takes";
  ASSERT_TRUE(gpu->freeze(0, all).has_value());
  const uint64_t frozen_at = executed();
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(executed(), frozen_at);
  ASSERT_TRUE(gpu->thaw(0, all).has_value());
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(executed(), frozen_at);
  ASSERT_TRUE(gpu->thaw(0, all).has_value());
  EXPECT_TRUE(eventually([&] { return executed() > frozen_at; }));

  ASSERT_TRUE(gpu->thaw(0, all).has_value()) << "a surplus thaw is harmless";
  ASSERT_TRUE(gpu->freeze(0, all).has_value());
  const uint64_t again_at = executed();
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(executed(), again_at) << "and is not saved up";
}

TEST_F(SimServer, FreezesOutliveTheAgent) {
  auto program = connect_program();
  const auto context = program->create_context(0).value();
  ASSERT_TRUE(program->submit(endless(context, 1)).has_value());
  ASSERT_TRUE(make_sim_gpu(socket_).value()->freeze(0, channels(context)).has_value());
  const uint64_t frozen_at = program->query(1)->executed_ns;
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(program->query(1)->executed_ns, frozen_at);
  ASSERT_TRUE(make_sim_gpu(socket_).value()->thaw(0, channels(context)).has_value());
  EXPECT_TRUE(eventually([&] { return program->query(1)->executed_ns > frozen_at; }));
}

TEST_F(SimServer, AControlUnderWayIsCarriedOutThoughTheAgentDies) {
  auto program = connect_program();
  const auto context = program->create_context(0).value();
  ASSERT_TRUE(program->submit(endless(context, 1)).has_value());
  const pid_t agent = ::fork();
  if (agent == 0) {
    auto gpu = make_sim_gpu(socket_);
    if (gpu) (void)(*gpu)->freeze(0, channels(context));  // killed somewhere in here
    ::pause();
  }
  std::this_thread::sleep_for(5ms);
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  ASSERT_EQ(::waitpid(agent, nullptr, 0), agent);
  auto gpu = make_sim_gpu(socket_).value();
  ASSERT_TRUE(gpu->thaw(0, channels(context)).has_value());
  const uint64_t then = program->query(1)->executed_ns;
  EXPECT_TRUE(eventually([&] { return program->query(1)->executed_ns > then; }));
}

TEST_F(SimServer, AKilledProgramFreesWhatItHadAndIsReported) {
  auto sim = make_sim(socket_).value();
  const uint64_t all_memory = connect_program()->memory(1)->free_bytes;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto program = Client::connect(socket_, Role::kProgram);
    const auto context = (*program)->create_context(1);
    (void)(*program)->allocate(context->context, 1 << 30);
    (void)(*program)->submit(endless(*context, 1));
    (void)(*program)->query(1);
    (void)!::write(ready[1], "x", 1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  auto probe = connect_program();
  EXPECT_EQ(probe->memory(1)->free_bytes, all_memory - (1 << 30));
  EXPECT_FALSE(sim.gpu->attach(child)->finish()->empty());

  // Frozen, too: that does not keep it from dying.
  std::vector<ChannelRef> refs;
  const auto objects = sim.gpu->attach(child)->finish().value();
  for (const DriverEvent& event : objects)
    if (const auto* channel = std::get_if<ChannelCreated>(&event.what))
      refs.push_back({channel->client, channel->channel});
  EXPECT_EQ(refs.size(), 20U);
  EXPECT_TRUE(sim.gpu->freeze(1, refs).has_value());

  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return probe->memory(1)->free_bytes == all_memory; }));
  EXPECT_TRUE(sim.gpu->attach(child)->finish()->empty());
  EXPECT_TRUE(sim.gpu->thaw(1, refs).has_value()) << "gone is no error for thaw";
  EXPECT_FALSE(sim.gpu->freeze(1, refs).has_value());

  bool is_closed = false;
  size_t groups = 0;
  EXPECT_TRUE(eventually([&] {
    (void)sim.observer->drain([&](DriverEvent&& event) {
      if (event.process.pid != child) return;
      groups += std::holds_alternative<GroupCreated>(event.what);
      is_closed |= std::holds_alternative<ProcessClosed>(event.what);
    });
    return is_closed;
  }));
  EXPECT_EQ(groups, 4U);
}

TEST_F(SimServer, TheObserverIsReadableWhenThereAreEventsAndNotOtherwise) {
  auto sim = make_sim(socket_).value();
  const auto is_readable = [&] {
    pollfd poll{.fd = sim.observer->fd(), .events = POLLIN, .revents = 0};
    return ::poll(&poll, 1, 0) == 1;
  };
  EXPECT_FALSE(is_readable());
  auto program = connect_program();
  ASSERT_TRUE(eventually(is_readable));
  std::vector<DriverEvent> events;
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(sim.observer->drain([&](DriverEvent&& e) { events.push_back(e); }).has_value());
    return events.size() >= 2;
  }));
  EXPECT_FALSE(is_readable());
  const auto& opened = std::get<ProcessOpened>(events[0].what);
  EXPECT_EQ(events[0].process.pid, ::getpid());
  EXPECT_GT(events[0].process.start_ticks, 0U);
  EXPECT_EQ(opened.uid, ::getuid());
  EXPECT_FALSE(opened.command.empty());
  EXPECT_TRUE(std::holds_alternative<ClientCreated>(events[1].what));
}

TEST_F(SimServer, TheSwitchLogHasRealInstants) {
  auto gpu = make_sim_gpu(socket_).value();
  auto one = connect_program();
  auto two = connect_program();
  const Time begun = MonotonicClock().now();
  ASSERT_TRUE(one->submit(endless(one->create_context(0).value(), 1)).has_value());
  ASSERT_TRUE(two->submit(endless(two->create_context(0).value(), 1)).has_value());
  std::vector<SwitchRecord> records;
  ASSERT_TRUE(eventually([&] {
    auto batch = gpu->read_switches(0).value();
    EXPECT_EQ(batch.lost, 0U);
    records.insert(records.end(), batch.records.begin(), batch.records.end());
    return records.size() >= 20;
  }));
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].is_start, i % 2 == 0);
    EXPECT_EQ(records[i].pid, ::getpid());
    if (i > 0) {
      EXPECT_GE(records[i].time, records[i - 1].time);
    }
  }
  EXPECT_GE(records.front().time, begun);
  EXPECT_LE(records.back().time, MonotonicClock().now());
}

TEST_F(SimServer, SlicesAreSetAndReadBackThroughTheOwnersDescriptor) {
  auto sim = make_sim(socket_).value();
  auto program = connect_program();
  const auto context = program->create_context(0).value();
  const auto events = sim.gpu->attach(::getpid())->finish().value();
  GroupRef ref;
  for (const DriverEvent& event : events)
    if (const auto* group = std::get_if<GroupCreated>(&event.what))
      if (group->group == context.group)
        ref = {event.process, group->fd, group->client, group->group};
  EXPECT_EQ(sim.gpu->slice(ref), 2048us);
  EXPECT_TRUE(sim.gpu->set_slice(ref, 1us).has_value());
  EXPECT_EQ(sim.gpu->slice(ref), 1us);
  ref.fd += 1;
  EXPECT_EQ(sim.gpu->set_slice(ref, 5us).error().code, std::errc::operation_not_permitted);
  ref.fd -= 1;
  ref.process.start_ticks += 1;
  EXPECT_EQ(sim.gpu->set_slice(ref, 5us).error().code, std::errc::no_such_process);
}

TEST_F(SimServer, MemoryRunsOutAtTheCapacity) {
  auto program = connect_program();
  const auto context = program->create_context(0).value();
  const uint64_t free_bytes = program->memory(0)->free_bytes;
  const auto most = program->allocate(context.context, free_bytes);
  ASSERT_TRUE(most.has_value());
  EXPECT_EQ(program->allocate(context.context, 1).error().code, std::errc::not_enough_memory);
  EXPECT_TRUE(program->free(*most).has_value());
  EXPECT_TRUE(program->allocate(context.context, 1).has_value());
}

TEST_F(SimServer, RefusesWhatIsNoProtocol) {
  const auto closes = [&](const void* data, size_t size) {
    const Fd raw(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_.copy(address.sun_path, socket_.size());
    EXPECT_EQ(::connect(raw.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::send(raw.get(), data, size, 0), static_cast<ssize_t>(size));
    pollfd poll{.fd = raw.get(), .events = POLLIN, .revents = 0};
    char byte = 0;
    return ::poll(&poll, 1, 10'000) == 1 && ::recv(raw.get(), &byte, 1, 0) <= 0;
  };
  EXPECT_TRUE(closes("GET / HTTP/1.1\r\n\r\n", 18));
  const Header too_short{8, 1, 0, 1};
  EXPECT_TRUE(closes(&too_short, sizeof too_short));
  const Header before_hello{16, static_cast<uint16_t>(Kind::kUsers), 0, 1};
  EXPECT_TRUE(closes(&before_hello, sizeof before_hello));
  EXPECT_TRUE(connect_program()->memory(0).has_value()) << "and others are still served";
}

TEST_F(SimServer, SurvivesRandomMessagesOfEveryRole) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const Role role{1 + static_cast<uint32_t>(round % 3)};
    auto client = Client::connect(socket_, role).value();
    if (role == Role::kProgram) (void)client->create_context(0);
    for (int i = 0; i < 20; ++i) {
      constexpr std::array kinds{2, 3, 10, 11, 12, 13, 14, 15, 16, 30, 31, 32, 33, 34, 35, 36, 37};
      constexpr std::array<size_t, 6> sizes{8, 8, 16, 32, 40, 24};
      struct {
        Header header;
        std::array<uint32_t, 12> body;
      } message{};
      const size_t size = sizes[random() % sizes.size()];
      message.header = {static_cast<uint32_t>(sizeof(Header) + size),
                        static_cast<uint16_t>(kinds[random() % kinds.size()]), 0, 0};
      for (uint32_t& word : message.body) {
        constexpr std::array<uint32_t, 6> likely{0, 1, 2, 0x5C000002, 0xC1D00001, 0xFFFFFFFF};
        word = random() % 4 == 0 ? static_cast<uint32_t>(random()) : likely[random() % 6];
      }
      if (::send(client->fd(), &message, message.header.bytes, MSG_NOSIGNAL) < 0) break;
    }
  }
  EXPECT_TRUE(connect_program()->create_context(0).has_value());
}

TEST_F(SimServer, ASecondServerOnTheSameSocketIsRefused) {
  EXPECT_EQ(Server::listen({.socket = socket_}).error().code, std::errc::address_in_use);
}

TEST(SimServerStart, ReplacesTheSocketOfADeadServer) {
  std::string folder = (std::filesystem::temp_directory_path() / "gs-sim-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/sub/sim.sock";
  {
    ASSERT_TRUE(std::filesystem::create_directory(folder + "/sub"));
    const Fd dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, path.size());
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  EXPECT_TRUE(Server::listen({.socket = path}).has_value());
  std::filesystem::remove_all(folder);
}

TEST_F(SimServer, WaitersAreReleasedWhenTheServerGoes) {
  auto program = connect_program();
  const auto context = program->create_context(0).value();
  ASSERT_TRUE(program->submit(endless(context, 1)).has_value());
  std::jthread waiter(
      [&] { EXPECT_EQ(program->wait(1).error().code, std::errc::connection_reset); });
  server_->stop();
  thread_.join();
  server_.reset();
  waiter.join();
  server_ = Server::listen({.socket = socket_}).value();
  thread_ = std::thread([this] { EXPECT_TRUE(server_->run().has_value()); });
}

Result<> set_hang(Client& client, uint32_t gpu, bool hangs) {
  const HangRequest request{gpu, hangs};
  const auto done =
      client.call(Kind::kHang, std::as_bytes(std::span(&request, 1)), {}, "make a GPU hang");
  return done ? Result<>() : std::unexpected(done.error());
}

TEST_F(SimServer, AGpuThatHangsAnswersNothingUntilItIsToldToAndTheOtherGoesOn) {
  auto program = connect_program();
  const auto on_first = program->create_context(0).value();
  const auto on_other = program->create_context(1).value();
  const auto control = Client::connect(socket_, Role::kControl).value();
  const auto gpu = make_sim_gpu(socket_).value();
  ASSERT_TRUE(set_hang(*control, 0, true));
  std::atomic<bool> has_frozen = false;
  std::thread freezer([&] {
    EXPECT_TRUE(gpu->freeze(0, channels(on_first)).has_value());
    has_frozen = true;
  });
  EXPECT_TRUE(gpu->freeze(1, channels(on_other)).has_value());
  EXPECT_TRUE(gpu->read_switches(1).has_value());
  EXPECT_FALSE(has_frozen);
  ASSERT_TRUE(set_hang(*control, 0, false));
  freezer.join();
  EXPECT_TRUE(gpu->read_switches(0).has_value());
}

TEST_F(SimServer, ADriverThatHangsGreetsNoControlUntilItIsToldTo) {
  const auto control = Client::connect(socket_, Role::kControl).value();
  ASSERT_TRUE(set_hang(*control, kGreeting, true));
  std::atomic<bool> is_open = false;
  std::thread opener([&] {
    EXPECT_TRUE(make_sim_gpu(socket_).has_value());
    is_open = true;
  });
  EXPECT_NE(connect_program(), nullptr) << "programs come and go";
  EXPECT_FALSE(is_open);
  ASSERT_TRUE(set_hang(*control, kGreeting, false));
  opener.join();
}

}  // namespace
}  // namespace gpushare::sim
