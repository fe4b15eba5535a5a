// SPDX-License-Identifier: Apache-2.0
// Tests RmGpu on the real driver with real programs. It needs root and an NVIDIA GPU; otherwise all
// tests are skipped, and `make test-gpu` says that nothing was tested.
#include "intercept/nvrm/rm_gpu.h"

#include <gtest/gtest.h>

#include <poll.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <thread>

#include "intercept/bpf/observer.h"
#include "shmctl/program/child.h"
#include "tests/workloads/common/output.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using Clock_ = std::chrono::steady_clock;

struct Objects {
  std::vector<GroupRef> groups;
  std::vector<ChannelRef> channels;          // all
  std::vector<ChannelRef> compute_channels;  // of the compute groups
  GroupRef compute;
};

Objects sort_out(const std::vector<DriverEvent>& events) {
  Objects found;
  std::vector<uint32_t> compute;
  for (const DriverEvent& event : events) {
    if (const auto* group = std::get_if<GroupCreated>(&event.what)) {
      found.groups.push_back({event.process, group->fd, group->client, group->group});
      if (group->engine == Engine::kGraphics) {
        compute.push_back(group->group);
        found.compute = found.groups.back();
      }
    } else if (const auto* channel = std::get_if<ChannelCreated>(&event.what)) {
      found.channels.push_back({channel->client, channel->channel});
      if (std::ranges::count(compute, channel->parent))
        found.compute_channels.push_back({channel->client, channel->channel});
    }
  }
  return found;
}

template <class F>
Nanos median_of(int times, F call) {
  std::vector<Nanos> took;
  for (int i = 0; i < times; ++i) took.push_back(call());
  std::ranges::nth_element(took, took.begin() + times / 2);
  return took[static_cast<size_t>(times / 2)];
}

template <class F>
Nanos timed(F call) {
  const auto from = Clock_::now();
  call();
  return Clock_::now() - from;
}

double us(Nanos t) { return static_cast<double>(t.count()) / 1000.0; }

// Starts a workload and waits until it has printed its first line.
Child start(const std::string& name, const std::vector<std::string>& arguments) {
  Launch launch{
      .command = {std::filesystem::path(own_folder()).parent_path() / "workloads" / name}};
  launch.command.insert(launch.command.end(), arguments.begin(), arguments.end());
  auto child = Child::start(std::move(launch));
  if (!child) throw std::runtime_error(child.error().message());
  const auto works = child->await("print a line", [&] { return !child->output().empty(); }, 30s);
  EXPECT_TRUE(works) << works.error().message();
  return std::move(*child);
}

// How many turns it has made, by its newest report.
double turns_of(const Child& endless) {
  return number_in(endless.last_line(), "turns").value_or(0);
}

class RmGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = make_rm_gpu();
    if (!made) GTEST_SKIP() << made.error().message();
    gpu_ = std::move(*made);
  }
  Child endless(int seconds) {
    return start("endless", {"--seconds", std::to_string(seconds), "--report-ms", "10"});
  }
  std::unique_ptr<Gpu> gpu_;
};

TEST_F(RmGpuTest, KnowsItsGpusAndDriver) {
  ASSERT_FALSE(gpu_->gpus().empty());
  for (const GpuInfo& info : gpu_->gpus()) {
    std::printf("gpu %u instance %u: %s %s %s, %u SMs, %.1f GiB\n", info.index, info.instance,
                info.name.c_str(), info.uuid.c_str(), info.pci.c_str(), info.sm_count,
                static_cast<double>(info.memory_bytes) / (1u << 30));
    EXPECT_GT(info.sm_count, 0u);
    EXPECT_GT(info.memory_bytes, uint64_t{1} << 30);
    EXPECT_EQ(info.uuid.substr(0, 4), "GPU-");
  }
  std::printf("driver %s, reason '%s'\n", gpu_->support().driver_version.c_str(),
              gpu_->support().reason.c_str());
  EXPECT_TRUE(gpu_->support().has_switch_log);
  EXPECT_TRUE(gpu_->support().can_freeze);
}

TEST_F(RmGpuTest, FindsTheObjectsOfAProgramThatWasThereBefore) {
  const Child program = endless(20);
  std::vector<pid_t> users = gpu_->users().value();
  EXPECT_TRUE(std::ranges::count(users, program.pid()));
  const auto from = Clock_::now();
  auto events = gpu_->attach(program.pid())->finish();
  const auto took = Clock_::now() - from;
  ASSERT_TRUE(events) << events.error().message();
  const Objects found = sort_out(*events);
  std::printf("attach: %zu groups, %zu channels (%zu compute) in %.1f ms\n", found.groups.size(),
              found.channels.size(), found.compute_channels.size(), us(took) / 1000);
  EXPECT_EQ(found.groups.size(), 4u);
  EXPECT_EQ(found.channels.size(), 20u);
  EXPECT_EQ(found.compute_channels.size(), 8u);
  EXPECT_LT(took, 100ms);
}

TEST_F(RmGpuTest, SeesByProbeWhatAttachFinds) {
  auto observer = BpfObserver::start();
  if (!observer) GTEST_SKIP() << observer.error().message();
  const Child program = endless(20);
  auto events = gpu_->attach(program.pid())->finish();
  ASSERT_TRUE(events);
  const Objects by_attach = sort_out(*events);
  // They come when the driver has been asked about them, on a thread of the observer's own.
  std::vector<DriverEvent> seen;
  Objects by_probe;
  for (const auto end = Clock_::now() + 5s;
       by_probe.channels.size() < by_attach.channels.size() && Clock_::now() < end;) {
    pollfd poll{.fd = (*observer)->fd(), .events = POLLIN, .revents = 0};
    ::poll(&poll, 1, 100);
    ASSERT_TRUE((*observer)->drain([&](DriverEvent&& event) {
      if (event.process.pid == program.pid()) seen.push_back(std::move(event));
    }));
    by_probe = sort_out(seen);
  }
  EXPECT_EQ(by_probe.groups.size(), by_attach.groups.size());
  EXPECT_EQ(by_probe.compute, by_attach.compute);
  auto sorted = [](std::vector<ChannelRef> refs) {
    std::ranges::sort(refs, {}, &ChannelRef::channel);
    return refs;
  };
  EXPECT_EQ(sorted(by_probe.channels), sorted(by_attach.channels));
  EXPECT_EQ(sorted(by_probe.compute_channels), sorted(by_attach.compute_channels));
  for (const DriverEvent& event : seen)
    if (const auto* made = std::get_if<ControlMade>(&event.what))
      std::printf("control %#x object %#x status %#x value %llu\n", made->command, made->object,
                  made->status, static_cast<unsigned long long>(made->value));
}

TEST_F(RmGpuTest, FreezeCostByProgram) {
  auto measure = [&](const std::string& what, const Objects& found, Micros slice,
                     std::span<const ChannelRef> channels) {
    EXPECT_TRUE(gpu_->set_slice(found.compute, slice));
    std::vector<Nanos> freezes, thaws, sets;
    for (int i = 0; i < 15; ++i) {
      freezes.push_back(timed([&] { EXPECT_TRUE(gpu_->freeze(0, channels)); }));
      std::this_thread::sleep_for(3ms);
      thaws.push_back(timed([&] { EXPECT_TRUE(gpu_->thaw(0, channels)); }));
      std::this_thread::sleep_for(7ms);
      sets.push_back(timed([&] { EXPECT_TRUE(gpu_->set_slice(found.compute, slice)); }));
      std::this_thread::sleep_for(3ms);
    }
    for (auto* list : {&freezes, &thaws, &sets}) std::ranges::sort(*list);
    std::printf("%-60s slice %5ld: freeze %4.0f/%4.0f/%4.0f thaw %4.0f set %4.0f us\n",
                what.c_str(), slice.count(), us(freezes[0]), us(freezes[7]), us(freezes[14]),
                us(thaws[7]), us(sets[7]));
  };
  const std::vector<std::vector<std::string>> programs{
      {"endless"},
      {"endless", "--units-per-turn", "1"},
      {"endless", "--units-per-turn", "1", "--blocks-per-sm", "4"},
      {"endless", "--blocks-per-sm", "4"},
      {"spin"},
      {"spin", "--kernel-us", "50"},
      {"spin", "--kernel-us", "20000"},
  };
  for (bool beside : {false, true}) {
    std::optional<Child> other;
    if (beside) other.emplace(endless(60));
    for (const auto& line : programs) {
      std::vector<std::string> arguments(line.begin() + 1, line.end());
      arguments.insert(arguments.end(), {"--seconds", "20", "--report-ms", "10"});
      const Child program = start(line[0], arguments);
      const Objects found = sort_out(gpu_->attach(program.pid())->finish().value());
      std::string name = beside ? "beside endless: " : "alone: ";
      for (const auto& word : line) name += word + " ";
      measure(name, found, 2048us, found.compute_channels);
      measure(name, found, 20000us, found.compute_channels);
      if (line.size() == 1)
        measure(name + "(one channel)", found, 2048us, std::span(found.compute_channels).first(1));
    }
  }
}

TEST_F(RmGpuTest, FreezesThawsAndSetsSlices) {
  const Child program = endless(30);
  auto events = gpu_->attach(program.pid())->finish();
  ASSERT_TRUE(events);
  const Objects found = sort_out(*events);
  struct Row {
    const char* what;
    std::span<const ChannelRef> channels;
  };
  for (const Row& row :
       {Row{"all channels", found.channels}, {"compute", found.compute_channels}}) {
    std::vector<Nanos> thaws;
    const Nanos freeze = median_of(20, [&] {
      Result<> done;
      const Nanos took = timed([&] { done = gpu_->freeze(0, row.channels); });
      EXPECT_TRUE(done) << done.error().message();
      std::this_thread::sleep_for(5ms);
      thaws.push_back(timed([&] { done = gpu_->thaw(0, row.channels); }));
      EXPECT_TRUE(done) << done.error().message();
      std::this_thread::sleep_for(5ms);
      return took;
    });
    std::ranges::sort(thaws);
    std::printf("%s: freeze %.0f us, thaw %.0f us\n", row.what, us(freeze), us(thaws[10]));
  }
  auto slice = gpu_->slice(found.compute);
  ASSERT_TRUE(slice) << slice.error().message();
  EXPECT_EQ(*slice, 2048us);
  const Nanos set = median_of(20, [&] {
    Result<> done;
    const Nanos took = timed([&] { done = gpu_->set_slice(found.compute, 5000us); });
    EXPECT_TRUE(done) << done.error().message();
    return took;
  });
  std::printf("set slice: %.0f us\n", us(set));
  EXPECT_EQ(gpu_->slice(found.compute).value_or(0us), 5000us);
}

// A context that has the GPU to itself is frozen and thawed; the log must still have records.
TEST_F(RmGpuTest, ALoneContextLeavesTheLogWhenFrozen) {
  const Child program = endless(30);
  auto events = gpu_->attach(program.pid())->finish();
  ASSERT_TRUE(events);
  const Objects found = sort_out(*events);
  (void)gpu_->read_switches(0);
  const Time base = Clock_::now();
  size_t records = 0;
  auto show = [&](const char* when) {
    auto batch = gpu_->read_switches(0);
    ASSERT_TRUE(batch) << batch.error().message();
    std::printf("%8.0f us %s: %zu records\n", us(Clock_::now() - base), when,
                batch->records.size());
    for (const SwitchRecord& record : batch->records)
      std::printf("    %8.0f us pid %d ctx %#x %s\n", us(record.time - base), record.pid,
                  record.context, record.is_start ? "start" : "end");
    records += batch->records.size();
  };
  std::this_thread::sleep_for(20ms);
  show("alone 20 ms");
  for (int i = 0; i < 3; ++i) {
    const Time f0 = Clock_::now();
    ASSERT_TRUE(gpu_->freeze(0, found.compute_channels));
    const Time f1 = Clock_::now();
    std::printf("freeze %.0f .. %.0f\n", us(f0 - base), us(f1 - base));
    show("frozen");
    std::this_thread::sleep_for(20ms);
    show("frozen 20 ms");
    const Time t0 = Clock_::now();
    ASSERT_TRUE(gpu_->thaw(0, found.compute_channels));
    std::printf("thaw %.0f .. %.0f\n", us(t0 - base), us(Clock_::now() - base));
    show("thawed");
    std::this_thread::sleep_for(20ms);
    show("thawed 20 ms");
  }
  EXPECT_GT(records, 0u);
  auto busy = gpu_->utilisation(0);
  ASSERT_TRUE(busy);
  for (const Utilisation& one : busy->of)
    std::printf("nvml: pid %d %.0f %%\n", one.pid, one.sm_fraction * 100);
}

TEST_F(RmGpuTest, LogsTheSharesOfTwoPrograms) {
  const Child first = endless(30), second = endless(30);
  const Objects a = sort_out(gpu_->attach(first.pid())->finish().value());
  const Objects b = sort_out(gpu_->attach(second.pid())->finish().value());
  ASSERT_TRUE(gpu_->set_slice(a.compute, 1000us));
  ASSERT_TRUE(gpu_->set_slice(b.compute, 4000us));
  std::this_thread::sleep_for(100ms);
  (void)gpu_->read_switches(0);
  std::map<pid_t, Nanos> used;
  std::map<pid_t, Time> since;
  size_t count = 0;
  uint64_t lost = 0;
  for (int i = 0; i < 500; ++i) {
    std::this_thread::sleep_for(2ms);
    auto batch = gpu_->read_switches(0);
    ASSERT_TRUE(batch);
    lost += batch->lost;
    count += batch->records.size();
    for (const SwitchRecord& record : batch->records) {
      if (record.is_start)
        since[record.pid] = record.time;
      else if (since.contains(record.pid))
        used[record.pid] += record.time - std::exchange(since[record.pid], record.time);
    }
  }
  const double total = us(used[first.pid()] + used[second.pid()]);
  const double share = us(used[first.pid()]) / total;
  std::printf("shares by the log: %.1f %% / %.1f %%, %zu records, %llu lost\n", 100 * share,
              100 - 100 * share, count, static_cast<unsigned long long>(lost));
  EXPECT_NEAR(share, 0.2, 0.02);
  EXPECT_EQ(lost, 0u);
}

// This is why the enforcer stops an MPS client's process: its channels are in one group with its
// neighbour's, so freezing them freezes both.
TEST_F(RmGpuTest, ClientsOfOneMpsServerShareAGroupAndFreezeTogether) {
  if (std::system("command -v nvidia-cuda-mps-control >/dev/null") != 0) GTEST_SKIP() << "no MPS";
  char folder[] = "/tmp/gpushare-mps-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
  ::setenv("CUDA_MPS_LOG_DIRECTORY", folder, 1);
  ASSERT_EQ(std::system("nvidia-cuda-mps-control -d"), 0);
  {
    Child a = endless(25), b = endless(25);
    const Objects of_a = sort_out(gpu_->attach(a.pid())->finish().value());
    const Objects of_b = sort_out(gpu_->attach(b.pid())->finish().value());
    EXPECT_EQ(gpu_->hardware_group(of_a.compute).value(),
              gpu_->hardware_group(of_b.compute).value());
    struct Rates {
      double a, b;  // turns per ms
    };
    auto rates = [&](const char* what) {
      std::this_thread::sleep_for(20ms);
      const double a0 = turns_of(a), b0 = turns_of(b);
      std::this_thread::sleep_for(300ms);
      const Rates found{(turns_of(a) - a0) / 300, (turns_of(b) - b0) / 300};
      std::printf("%-24s neighbour %6.0f/ms, client %6.0f/ms\n", what, found.a, found.b);
      return found;
    };
    const Rates before = rates("nothing frozen");
    ASSERT_TRUE(gpu_->freeze(0, of_b.compute_channels));
    const Rates frozen = rates("client frozen");
    EXPECT_TRUE(gpu_->thaw(0, of_b.compute_channels));
    const Rates after = rates("thawed");
    EXPECT_EQ(frozen.a + frozen.b, 0);
    EXPECT_GT(after.a, before.a / 2);
    EXPECT_GT(after.b, before.b / 2);
  }
  EXPECT_EQ(std::system("echo quit | nvidia-cuda-mps-control"), 0);
  ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  ::unsetenv("CUDA_MPS_LOG_DIRECTORY");
}

}  // namespace
}  // namespace gpushare
