// SPDX-License-Identifier: Apache-2.0
// gpu-scenarios: measures the whole system on a GPU, native time slicing beside gpushare in the
// same run. --help says how it is used.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>

#include "bench/gpu/scenario.h"
#include "intercept/nvrm/rm_gpu.h"
#include "shmctl/base/version.h"
#include "shmctl/program/command_line.h"

namespace gpushare::bench {
namespace {

struct Options {
  Settings settings;
  std::string out, only = "*", commit = kCommit, command;
};

std::vector<Scenario> all_scenarios() {
  std::vector<Scenario> all;
  for (const auto family :
       {share_scenarios, cap_scenarios, idle_class_scenarios, high_class_scenarios, cost_scenarios,
        freeze_scenarios, two_gpu_scenarios, mps_scenarios, death_scenarios, result_scenarios})
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

// Returns false when a signal has interrupted it.
bool play(const Scenario& scenario, const Settings& settings, const Machine& machine, Wait& wait,
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
      Stage stage(settings, wait);
      scenario.run(stage, report);
    } catch (const Abort& abort) {
      report.failed(abort.error);
      is_interrupted = abort.error.code == std::errc::operation_canceled;
    }
  }
  report.end(std::chrono::duration<double>(Stage::now() - began).count());
  return !is_interrupted;
}

ExitCode run(const Options& options) {
  const auto machine = describe_machine(options.settings);
  if (!machine) {
    fmt::print(stderr, "gpu-scenarios: {}\n", machine.error().message());
    return kExitFailure;
  }
  Wait wait = Wait::until_interrupted();
  Report report;
  size_t played = 0;
  for (const Scenario& scenario : all_scenarios()) {
    if (::fnmatch(options.only.c_str(), scenario.name, 0) != 0) continue;
    ++played;
    if (!play(scenario, options.settings, *machine, wait, report)) break;
  }
  if (played == 0) {
    fmt::print(stderr, "gpu-scenarios: no scenario matches '{}'; see --list\n", options.only);
    return kExitUsage;
  }
  fmt::print("{}", report.table());
  if (!options.out.empty())
    if (const auto done = report.append_to(options.out, head_of(options, *machine)); !done) {
      fmt::print(stderr, "gpu-scenarios: {}\n", done.error().message());
      return kExitFailure;
    }
  return report.all_kept() ? kExitOk : kExitFailure;
}

ExitCode list() {
  for (const Scenario& scenario : all_scenarios())
    fmt::print("{:<18} {}\n", scenario.name, scenario.what);
  return kExitOk;
}

Command program(const std::string& command) {
  return {
      .name = "gpu-scenarios",
      .summary = "measure the whole system on a GPU, native time slicing beside gpushare.",
      .details =
          "Runs unmodified programs on the GPU, first as the driver shares it, then under "
          "gpushared, and compares both with what gpushare promises. It needs root and an NVIDIA "
          "GPU, or --sim. No other agent may run. Exit codes: 0 every promise was kept, 1 one "
          "was not, 2 wrong usage.",
      .options = {{"out", 0, "FILE", "Add this run to that file, as one line of JSON"},
                  {"only", 0, "GLOB",
                   "Only the scenarios whose name matches, for example 'shares-*'", "*"},
                  number_option("seconds", "S", "How long each run is measured", {0.5, 60}, "3"),
                  {"sim", 0, "", "Use the simulated GPU, to try the scenarios and not to measure"},
                  {"commit", 0, "COMMIT", "What is measured, for that file", kCommit},
                  {"list", 0, "", "Print names and descriptions of the scenarios"}},
      .examples = {"gpu-scenarios --only 'shares-*' --out shares.json"},
      .run = [&command](const Invocation& in) -> ExitCode {
        if (in.has("list")) return list();
        Options options{.settings = {},
                        .out = in.text("out"),
                        .only = in.text("only"),
                        .commit = in.text("commit"),
                        .command = command};
        const auto self = std::filesystem::read_symlink("/proc/self/exe");
        options.settings.build = self.parent_path().parent_path().parent_path().string();
        options.settings.seconds = in.number("seconds");
        options.settings.is_simulated = in.has("sim");
        return run(options);
      },
  };
}

}  // namespace
}  // namespace gpushare::bench

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  const std::string command = fmt::format("{}", fmt::join(words, " "));
  return gpushare::run_program(gpushare::bench::program(command), argc, argv);
}
