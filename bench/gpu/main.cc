// SPDX-License-Identifier: Apache-2.0
// gpu-scenarios: whole-system measurements on a GPU, native time slicing beside gpushare in the
// same run. See --help.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <getopt.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "bench/gpu/scenario.h"
#include "intercept/nvrm/rm_gpu.h"
#include "shmctl/base/version.h"

namespace gpushare::bench {
namespace {

constexpr int kOk = 0, kFailed = 1, kUsage = 2;
constexpr char kHelp[] =
    R"(Usage: gpu-scenarios [--out FILE] [--only GLOB] [--seconds S] [--sim] [--commit C] [--list]

Runs unmodified programs on the GPU, first as the driver shares it, then under gpushared, and compares
both with what gpushare promises. Needs root and an NVIDIA GPU, or --sim. No other agent may run.

  --out FILE    add this run to that file, one line of JSON
  --only GLOB   only the scenarios whose name matches, for example 'shares-*'
  --seconds S   how long each run is measured (default 3)
  --sim         on the simulated GPU: for trying the scenarios, not for measuring
  --commit C    what was measured, for that file (default: the commit of this build)
  --list        names and descriptions of the scenarios
  --help        this text

Exit status: 0 every promise kept, 1 not, 2 wrong use.
)";

struct Options {
  Settings settings;
  std::string out, only = "*", commit = kCommit, command;
};

std::vector<Scenario> all_scenarios() {
  std::vector<Scenario> all;
  for (const auto family :
       {share_scenarios, cap_scenarios, idle_class_scenarios, cost_scenarios, freeze_scenarios,
        two_gpu_scenarios, mps_scenarios, death_scenarios, result_scenarios})
    for (const Scenario& scenario : family()) all.push_back(scenario);
  return all;
}

struct Machine {
  std::string gpu = "simulated", driver = "sim";
  uint32_t gpus = 0;
};

Result<Machine> describe_machine(const Settings& settings) {
  if (settings.is_simulated) return Machine{.gpus = settings.simulated_gpus};
  auto gpu = make_rm_gpu();
  if (!gpu) return std::unexpected(gpu.error());
  const auto gpus = (*gpu)->gpus();
  if (gpus.empty()) return make_error(std::errc::no_such_device, "find a GPU");
  if (!(*gpu)->support().reason.empty())
    return make_error(std::errc::not_supported, "use this driver", (*gpu)->support().reason);
  return Machine{.gpu = gpus[0].name,
                 .driver = (*gpu)->support().driver_version,
                 .gpus = static_cast<uint32_t>(gpus.size())};
}

Record head_of(const Options& options, const Machine& machine) {
  utsname system{};
  ::uname(&system);
  return Record()
      .add("date", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr))))
      .add("gpu", machine.gpus > 1 ? fmt::format("{}x {}", machine.gpus, machine.gpu) : machine.gpu)
      .add("gpus", machine.gpus)
      .add("driver", machine.driver)
      .add("kernel", system.release)
      .add("commit", options.commit)
      .add("command", options.command)
      .add("is_simulated", options.settings.is_simulated)
      .add("measured_seconds", options.settings.seconds);
}

// False: interrupted.
bool play(const Scenario& scenario, const Settings& settings, const Machine& machine,
          Report& report) {
  report.begin(scenario.name);
  const Time began = Stage::now();
  bool is_interrupted = false;
  if (scenario.gpus > machine.gpus) {
    report.skipped(fmt::format("needs {} GPUs", scenario.gpus));
  } else if (scenario.needs_hardware && settings.is_simulated) {
    report.skipped("the simulation does not have this");
  } else {
    try {
      Stage stage(settings);
      scenario.run(stage, report);
    } catch (const Abort& abort) {
      report.failed(abort.error);
      is_interrupted = abort.error.code == std::errc::interrupted;
    }
  }
  report.end(std::chrono::duration<double>(Stage::now() - began).count());
  return !is_interrupted;
}

int run(const Options& options) {
  const auto machine = describe_machine(options.settings);
  if (!machine) {
    fmt::print(stderr, "gpu-scenarios: {}\n", machine.error().message());
    return kFailed;
  }
  abort_on_signals();
  Report report;
  size_t played = 0;
  for (const Scenario& scenario : all_scenarios()) {
    if (::fnmatch(options.only.c_str(), scenario.name, 0) != 0) continue;
    ++played;
    if (!play(scenario, options.settings, *machine, report)) break;
  }
  if (played == 0) {
    fmt::print(stderr, "gpu-scenarios: no scenario matches '{}'; see --list\n", options.only);
    return kUsage;
  }
  fmt::print("{}", report.table());
  if (!options.out.empty())
    if (const auto done = report.append_to(options.out, head_of(options, *machine)); !done) {
      fmt::print(stderr, "gpu-scenarios: {}\n", done.error().message());
      return kFailed;
    }
  return report.all_kept() ? kOk : kFailed;
}

int list() {
  for (const Scenario& scenario : all_scenarios())
    fmt::print("{:<18} {}\n", scenario.name, scenario.what);
  return kOk;
}

int parse_and_run(int argc, char** argv) {
  Options options;
  for (int i = 0; i < argc; ++i) options.command += fmt::format("{}{}", i == 0 ? "" : " ", argv[i]);
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  options.settings.build = self.parent_path().parent_path().parent_path().string();
  enum { kOut = 1, kOnly, kSeconds, kSim, kCommitGiven, kList, kHelpAsked };
  const option known[] = {{"out", required_argument, nullptr, kOut},
                          {"only", required_argument, nullptr, kOnly},
                          {"seconds", required_argument, nullptr, kSeconds},
                          {"sim", no_argument, nullptr, kSim},
                          {"commit", required_argument, nullptr, kCommitGiven},
                          {"list", no_argument, nullptr, kList},
                          {"help", no_argument, nullptr, kHelpAsked},
                          {}};
  for (int each = 0; (each = ::getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    switch (each) {
      case kOut:
        options.out = optarg;
        break;
      case kOnly:
        options.only = optarg;
        break;
      case kSeconds:
        options.settings.seconds = std::strtod(optarg, nullptr);
        break;
      case kSim:
        options.settings.is_simulated = true;
        break;
      case kCommitGiven:
        options.commit = optarg;
        break;
      case kList:
        return list();
      case kHelpAsked:
        fmt::print("{}", kHelp);
        return kOk;
      default:
        return kUsage;  // getopt has said what is wrong
    }
  }
  if (optind < argc || !(options.settings.seconds >= 0.5 && options.settings.seconds <= 60)) {
    fmt::print(stderr, "gpu-scenarios: takes options only, and 0.5 to 60 seconds; see --help\n");
    return kUsage;
  }
  return run(options);
}

}  // namespace
}  // namespace gpushare::bench

int main(int argc, char** argv) { return gpushare::bench::parse_and_run(argc, argv); }
