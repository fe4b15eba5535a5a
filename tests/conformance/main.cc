// SPDX-License-Identifier: Apache-2.0
// conformance: plays scenes whose order of events CUDA's documentation settles, and prints a line
// for each, "NAME: WHAT WAS SEEN", without addresses and times. It runs on the driver's
// libcuda.so.1 and on the stand-in, with the shim and without, and must print what expected.h says
// everywhere. It compares the lines itself and prints those that differ to standard error.
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/conformance/expected.h"
#include "tests/conformance/scenes.h"
#include "tests/workloads/common/flags.h"

namespace gpushare::conformance {
namespace {

struct Settings {
  std::string only;
  uint64_t device = 0, repeat = 1;

  explicit Settings(workloads::Flags& flags) {
    flags.add("--only", &only, "scenes whose name contains this", "--repeat", &repeat,
              "how often all are played; lines are printed the first time");
    flags.parse(&device);
  }
};

// The expected line of the scene with that name.
std::string_view expected_line(std::string_view name) {
  std::string_view rest = kExpected;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (line.starts_with(name) && line.substr(name.size()).starts_with(": ")) return line;
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return "(nothing)";
}

// Plays the scene and returns true if its line was as expected.
bool play(Stage& stage, const Scene& scene, bool is_printed) {
  std::string line;
  try {
    line = fmt::format("{}: {}", scene.name, stage.play(scene.play));
  } catch (const Failure& failure) {
    line = fmt::format("{}: FAILED: {}", scene.name, failure.what);
  }
  if (is_printed) fmt::print("{}\n", line);
  std::fflush(stdout);
  const std::string_view expected = expected_line(scene.name);
  if (line != expected) fmt::print(stderr, "seen      {}\nexpected  {}\n", line, expected);
  return line == expected;
}

int run(const Settings& s) {
  // Streams that share a queue of the hardware wait for each other without reason.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const workloads::GpuSession session(s.device, CU_CTX_SCHED_BLOCKING_SYNC);
  Stage stage(session);
  int played = 0, right = 0;
  for (uint64_t round = 0; round < s.repeat; ++round) {
    for (const auto scenes :
         {default_stream_scenes(), stream_scenes(), event_scenes(), refusal_scenes(),
          green_context_scenes(), capture_scenes(), graph_scenes(), virtual_memory_scenes()}) {
      for (const Scene& scene : scenes) {
        if (!std::string_view(scene.name).contains(s.only)) continue;
        ++played;
        right += play(stage, scene, round == 0) ? 1 : 0;
      }
    }
  }
  fmt::print(stderr, "{} scenes as expected, {} not\n", right, played - right);
  return played != 0 && right == played ? 0 : 1;
}

}  // namespace
}  // namespace gpushare::conformance

int main(int argc, char** argv) {
  gpushare::workloads::set_program_name("conformance");
  gpushare::workloads::Flags flags("conformance",
                                   "what must happen in which order, scene by scene.", argc, argv);
  return gpushare::conformance::run(gpushare::conformance::Settings(flags));
}
