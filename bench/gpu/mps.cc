// SPDX-License-Identifier: Apache-2.0
// MPS: one client is frozen and thawed from outside, its neighbour in the same context runs on.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "bench/gpu/freezing.h"
#include "bench/gpu/report.h"
#include "bench/gpu/scenario.h"

namespace gpushare::bench {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr double kKept = 0.95;
// Of its speed: what a client that is frozen half the time may still do.
constexpr double kFrozenMost = 0.75;

// An MPS control daemon on directories of its own; it ends with this. Programs that the stage
// starts meanwhile are its clients.
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
  const char* counter;  // of its progress lines
};

bool has_mps() { return std::system("command -v nvidia-cuda-mps-control >/dev/null 2>&1") == 0; }

void mps(Stage& stage, Report& report, const Load& load) {
  if (!has_mps()) return report.skipped("there is no nvidia-cuda-mps-control");
  const auto gpu = stage.open_gpu();
  const MpsDaemon daemon(stage);
  const double measured = stage.settings().seconds;
  const std::vector<std::string> arguments{"--seconds",       fmt::format("{}", 20 + 2 * measured),
                                           "--report-ms",     "5",
                                           "--blocks-per-sm", "1"};
  Child& neighbour = stage.start(load.program, arguments);
  stage.await_output(neighbour);
  Child& client = stage.start(load.program, arguments);
  stage.await_output(client);
  const Channels channels = channels_of(*gpu, client.pid());

  const Time calm = Stage::now() + 500ms, stirred = calm + seconds(measured);
  stage.wait_until(stirred);
  const FreezeCycles cycles = freeze_cycles(stage, *gpu, channels.gpu, channels.all, 20ms, 20ms,
                                            stirred + seconds(measured));
  const Time end = Stage::now();
  stage.wait_until(end + 50ms);
  const auto rate = [&](const Child& program, Time from, Time to) {
    return rate_between(program.output(), load.counter, from, to);
  };
  const double before = rate(neighbour, calm, stirred), during = rate(neighbour, stirred, end);
  const double client_before = rate(client, calm, stirred),
               client_during = rate(client, stirred, end);
  report.numbers()
      .add("neighbour_per_ms_before", before)
      .add("neighbour_per_ms_during", during)
      .add("client_per_ms_before", client_before)
      .add("client_per_ms_during", client_during)
      .add("client_channels", channels.all.size())
      .add("frozen_fraction", cycles.frozen_fraction)
      .add("freeze_us", cycles.freeze_us)
      .add("thaw_us", cycles.thaw_us);
  report.must("neighbour's speed", ">= 95 %", fmt::format("{:.0f}/ms", before),
              fmt::format("{} ({:.0f}/ms)", percent(during / before), during),
              during >= kKept * before);
  report.must("the client was frozen", "<= 75 % of its speed",
              fmt::format("{:.0f}/ms", client_before), percent(client_during / client_before),
              client_during <= kFrozenMost * client_before);
}

void mps_endless(Stage& stage, Report& report) { mps(stage, report, {"endless", "turns"}); }
void mps_spin(Stage& stage, Report& report) { mps(stage, report, {"spin", "units"}); }

constexpr Scenario kScenarios[] = {
    {"mps-endless", "an MPS client frozen and thawed 25 times a second; kernels that never end",
     mps_endless, 1, true},
    {"mps-spin", "the same with kernels of 2 ms", mps_spin, 1, true},
};

}  // namespace

std::span<const Scenario> mps_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
