// SPDX-License-Identifier: Apache-2.0
// slot_liar: asks the agent for a slot as the shim does, and writes iterations into it that take
// longer than the time that passes, to get more SMs for its target time. It needs no GPU.
#include <thread>

#include "shmctl/shim/published.h"
#include "tests/attacks/own_slot.h"
#include "tests/workloads/common/flags.h"
#include "tests/workloads/common/gpu_session.h"
#include "tests/workloads/common/json_line.h"

namespace gpushare::workloads {
namespace {

struct Settings {
  double seconds = 60;
  uint64_t claimed_ms = 1000, pause_ms = 10, slo_us = 1000;

  explicit Settings(Flags& flags) {
    flags.add("--seconds", &seconds, "how long", "--claimed-ms", &claimed_ms,
              "what each iteration is said to take", "--pause-ms", &pause_ms, "between their ends",
              "--slo-us", &slo_us, "the target that it asks for");
    flags.parse();
  }
};

int run(const Settings& s) {
  ShimSlot* const slot = ask_for_a_slot();
  if (slot == nullptr) return fmt::print(stderr, "no slot\n"), 1;
  JsonLine().add("has_slot", true).print();
  PublishedIterations said{.source = ShimSource::kAnnounced,
                           .confidence = 1000,
                           .slo_us = static_cast<uint32_t>(s.slo_us)};
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(s.seconds);
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(s.pause_ms));
    ++said.begun;
    ++said.ended;
    said.busy_ns += s.claimed_ms * 1'000'000;
    said.latency_ns += s.claimed_ms * 1'000'000;
    publish(slot->iterations, said);
  }
  return 0;
}

}  // namespace
}  // namespace gpushare::workloads

GS_WORKLOAD_MAIN("slot_liar", "makes up iterations in its slot.")
