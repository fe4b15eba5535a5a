// SPDX-License-Identifier: Apache-2.0
// hidden_context: has an idle context that everybody knows, and works in a second one that no event
// tells of, as a program has that rewrites the arguments of its calls before the probe reads them.
// Prints how long that has run, a line of JSON a tenth of a second. On the simulated GPU only.
#include <cstdlib>
#include <thread>

#include "intercept/sim/wire/client.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  double seconds = 60;
  uint64_t pause_ms = 100;

  explicit Settings(Flags& flags) {
    flags.add("--seconds", &seconds, "how long", "--pause-ms", &pause_ms, "between its lines");
    flags.parse();
  }
};

int run(const Settings& s) {
  const char* path = std::getenv("GPUSHARE_SIM");
  if (path == nullptr) return fmt::print(stderr, "it needs a simulated GPU\n"), 1;
  auto client = sim::Client::connect(path, sim::Role::kProgram);
  if (!client) return fmt::print(stderr, "{}\n", client.error().message()), 1;
  if (auto known = (*client)->create_context(0); !known)
    return fmt::print(stderr, "{}\n", known.error().message()), 1;
  const auto hidden = (*client)->create_context(0, /*mps_server=*/0, /*is_hidden=*/true);
  if (!hidden) return fmt::print(stderr, "{}\n", hidden.error().message()), 1;
  sim::Work work{};
  work.sequence = 1;
  work.context = hidden->context;
  work.kind = sim::WorkKind::kEndless;
  work.sm_ppm = 1'000'000;
  if (!(*client)->submit(work)) return 1;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(s.seconds);
  while (std::chrono::steady_clock::now() < end) {
    const auto progress = (*client)->query(work.sequence);
    if (!progress) return 1;
    JsonLine().add("ran_ns", progress->executed_ns).print();
    std::this_thread::sleep_for(std::chrono::milliseconds(s.pause_ms));
  }
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("hidden_context", "works in a context that no event tells of.")
