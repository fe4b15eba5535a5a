// SPDX-License-Identifier: Apache-2.0
// MPS: one client is frozen and thawed from outside while its neighbour runs on. The clients of one
// server share one channel group of the hardware, so the agent stops the process instead of its
// channels.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "bench/gpu/report.h"
#include "bench/gpu/scenario.h"
#include "bench/gpu/scenarios/freezing.h"

namespace gpushare::bench {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr double kKept = 0.95;
// The largest part of its speed that a client may keep which is frozen half of the time.
constexpr double kFrozenMost = 0.75;

// An MPS control daemon with folders of its own, which ends with this object. Programs that the
// stage starts meanwhile are its clients.
class MpsDaemon {
 public:
  explicit MpsDaemon(Stage& stage) : stage_(stage) {
    std::string folder = (fs::temp_directory_path() / "gpushare-mps-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) throw Abort{errno_error("make a folder").error()};
    folder_ = folder;
    stage_.set_variable("CUDA_MPS_PIPE_DIRECTORY", folder_);
    stage_.set_variable("CUDA_MPS_LOG_DIRECTORY", folder_);
    stage_.run_tool({"/usr/bin/env", "nvidia-cuda-mps-control", "-d"});
  }
  ~MpsDaemon() {
    stage_.kill_programs();
    try {
      stage_.run_tool({"/bin/sh", "-c", "echo quit | nvidia-cuda-mps-control"});
    } catch (const Abort& abort) {
      fmt::print(stderr, "stop MPS: {}\n", abort.error.message());
    }
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;

 private:
  Stage& stage_;
  std::string folder_;
};

struct Load {
  const char* program;
  std::vector<std::string> arguments;
  const char* counter;  // what its progress lines count
};

bool has_mps() { return std::system("command -v nvidia-cuda-mps-control >/dev/null 2>&1") == 0; }

// Two clients of one server, and their speeds before and while one of them is frozen.
class Neighbours {
 public:
  Neighbours(Stage& stage, const Load& load)
      : stage_(stage),
        load_(load),
        daemon_(stage),
        measured_(stage.settings().seconds),
        neighbour(start()),
        client(start()) {}

  // Measures the undisturbed speeds. The client must be frozen and thawed from here until end().
  void measure_before() {
    const Time calm = Stage::now() + 500ms;
    stirred_ = calm + seconds(measured_);
    stage_.wait_until(stirred_);
    neighbour_before = rate(neighbour, calm, stirred_);
    client_before = rate(client, calm, stirred_);
  }
  Time end() const { return stirred_ + seconds(measured_); }
  void measure_during() {
    const Time until = Stage::now();
    stage_.wait_until(until + 50ms);
    neighbour_during = rate(neighbour, stirred_, until);
    client_during = rate(client, stirred_, until);
  }
  void add_to(Report& report) const {
    report.numbers()
        .add("neighbour_per_ms_before", neighbour_before)
        .add("neighbour_per_ms_during", neighbour_during)
        .add("client_per_ms_before", client_before)
        .add("client_per_ms_during", client_during);
  }

 private:
  Child& start() {
    std::vector<std::string> arguments = load_.arguments;
    arguments.insert(arguments.end(), {"--seconds", fmt::format("{}", 20 + 2 * measured_),
                                       "--report-ms", "5", "--blocks-per-sm", "1"});
    Child& child = stage_.start(load_.program, arguments);
    stage_.await_output(child);
    return child;
  }
  double rate(const Child& program, Time from, Time to) const {
    return rate_between(program.output(), load_.counter, from, to);
  }

  Stage& stage_;
  const Load load_;
  const MpsDaemon daemon_;
  const double measured_;
  Time stirred_{};

 public:
  Child& neighbour;
  Child& client;
  double neighbour_before = 0, neighbour_during = 0, client_before = 0, client_during = 0;
};

// Freezes as a user does, through the agent, which stops the process.
void by_agent(Stage& stage, Report& report, const Load& load, bool does_end) {
  if (!has_mps()) return report.skipped("there is no nvidia-cuda-mps-control");
  stage.start_agent("");
  {
    Neighbours pair(stage, load);
    const auto is_known = [&] {
      return std::ranges::count_if(stage.plane().processes, [&](const auto& numbered) {
        return numbered.record.pid == pair.client.pid() ||
               numbered.record.pid == pair.neighbour.pid();
      });
    };
    if (!stage.wait_until([&] { return is_known() == 2; }, 10s))
      give_up("wait for the agent", "it does not see the MPS clients");
    pair.measure_before();
    size_t cycles = 0;
    for (; Stage::now() < pair.end(); ++cycles) {
      stage.tell("freeze", pair.client.pid());
      stage.wait_until(Stage::now() + 20ms);
      stage.tell("thaw", pair.client.pid());
      stage.wait_until(Stage::now() + 20ms);
    }
    pair.measure_during();
    pair.add_to(report);
    report.numbers().add("cycles", cycles);
    report.must(
        "neighbour's speed", ">= 95 %", fmt::format("{:.0f}/ms", pair.neighbour_before),
        fmt::format("{} ({:.0f}/ms)", percent(pair.neighbour_during / pair.neighbour_before),
                    pair.neighbour_during),
        pair.neighbour_during >= kKept * pair.neighbour_before);
    if (does_end)
      report.must("the client was frozen", "<= 75 % of its speed",
                  fmt::format("{:.0f}/ms", pair.client_before),
                  percent(pair.client_during / pair.client_before),
                  pair.client_during <= kFrozenMost * pair.client_before);
  }
  stage.stop_agent();
}

// Freezes the channels of one client, to show why the agent does not.
void by_channels(Stage& stage, Report& report, const Load& load) {
  if (!has_mps()) return report.skipped("there is no nvidia-cuda-mps-control");
  const auto gpu = stage.open_gpu();
  Neighbours pair(stage, load);
  const Channels channels = channels_of(*gpu, pair.client.pid());
  pair.measure_before();
  const FreezeCycles cycles =
      freeze_cycles(stage, *gpu, channels.gpu, channels.all, 20ms, 20ms, pair.end());
  pair.measure_during();
  pair.add_to(report);
  report.numbers()
      .add("client_channels", channels.all.size())
      .add("frozen_fraction", cycles.frozen_fraction)
      .add("freeze_us", cycles.freeze_us)
      .add("thaw_us", cycles.thaw_us);
  report.must("neighbour's speed (why the agent does not)", "measured",
              fmt::format("{:.0f}/ms", pair.neighbour_before),
              percent(pair.neighbour_during / pair.neighbour_before), pair.neighbour_before > 0);
}

Load spin(Stage& stage, double kernel_us) {
  return {"spin", stage.spin_arguments(kernel_us), "units"};
}

void mps_2ms(Stage& stage, Report& report) { by_agent(stage, report, spin(stage, 2000), true); }
void mps_50us(Stage& stage, Report& report) { by_agent(stage, report, spin(stage, 50), true); }
void mps_endless(Stage& stage, Report& report) {
  by_agent(stage, report, {"endless", {}, "turns"}, false);
}
void mps_channels(Stage& stage, Report& report) { by_channels(stage, report, spin(stage, 2000)); }

constexpr Scenario kScenarios[] = {
    {"mps-2ms", "an MPS client frozen and thawed 25 times a second; kernels of 2 ms", mps_2ms, 1,
     true},
    {"mps-50us", "the same with kernels of 50 us", mps_50us, 1, true},
    {"mps-endless", "the same with kernels that never end, which a stopped process leaves running",
     mps_endless, 1, true},
    {"mps-channels", "the client's channels frozen instead, without the agent", mps_channels, 1,
     true},
};

}  // namespace

std::span<const Scenario> mps_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
