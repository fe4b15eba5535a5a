// SPDX-License-Identifier: Apache-2.0
// Results: programs that were capped, rotated and frozen at random compute the same as alone.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "bench/gpu/report.h"
#include "bench/gpu/scenario.h"

namespace gpushare::bench {
namespace {

using namespace std::chrono_literals;

struct Work {
  const char* workload;
  std::vector<std::string> arguments;
  const char* tenant;
};

std::vector<Work> works(Stage& stage) {
  std::vector<std::string> spin = stage.spin_arguments(2000);
  spin.insert(spin.end(), {"--count", "200"});
  return {{"spin", spin, "capped"},
          {"hash", {"--rounds", stage.settings().is_simulated ? "50" : "2000"}, "batch"},
          {"copy", {"--rounds", "10", "--bytes", "16777216"}, "batch"}};
}

std::string checksum(const std::string& line) { return text_in(line, "checksum"); }

void bit_equal(Stage& stage, Report& report) {
  const std::vector<Work> all = works(stage);
  std::vector<std::string> alone, shared;
  for (const Work& work : all)
    alone.push_back(checksum(stage.finish(stage.start(work.workload, work.arguments))));
  stage.kill_programs();

  stage.start_agent("[tenant.capped]\nmax = \"30%\"\n[tenant.batch]\npriority = \"idle\"\n");
  std::vector<Child*> programs;
  for (const Work& work : all)
    programs.push_back(&stage.start(work.workload, work.arguments, work.tenant));
  std::mt19937 random(1);
  std::uniform_int_distribution<int> pause_us(3'000, 30'000);
  const auto pause = [&] {
    stage.wait_until(Stage::now() + std::chrono::microseconds(pause_us(random)));
  };
  uint64_t user_freezes = 0, agent_freezes = 0;
  const auto has_all_ended = [&] {
    return std::ranges::all_of(programs, [](const Child* child) { return child->has_ended(); });
  };
  for (const Time end = Stage::now() + 60s; !has_all_ended() && Stage::now() < end;) {
    const PlaneSnapshot plane = stage.plane();
    for (const auto& [slot, tenant] : plane.tenants)
      agent_freezes = std::max<uint64_t>(agent_freezes, tenant.freezes);
    for (const std::string tenant : {"capped", "batch"}) {
      stage.tell("freeze", 0, tenant);
      pause();
      stage.tell("thaw", 0, tenant);
      ++user_freezes;
    }
    pause();
  }
  for (Child* program : programs) shared.push_back(checksum(stage.finish(*program)));
  stage.kill_programs();
  stage.stop_agent();

  report.numbers().add("user_freezes", user_freezes).add("most_freezes_of_a_tenant", agent_freezes);
  for (size_t i = 0; i < all.size(); ++i) {
    report.numbers()
        .add(std::string(all[i].workload) + "_alone", alone[i])
        .add(std::string(all[i].workload) + "_shared", shared[i]);
    report.must(std::string(all[i].workload) + ": checksum", "equal to alone", alone[i], shared[i],
                !alone[i].empty() && alone[i] == shared[i]);
  }
  report.must("they were frozen", "often", "-", std::to_string(agent_freezes), agent_freezes > 0);
}

constexpr Scenario kScenarios[] = {
    {"bit-equal", "checksums under caps, rotation and freezes, and alone", bit_equal},
};

}  // namespace

std::span<const Scenario> result_scenarios() { return kScenarios; }

}  // namespace gpushare::bench
