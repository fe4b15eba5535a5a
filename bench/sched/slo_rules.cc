// SPDX-License-Identifier: Apache-2.0
// After a step of the load, in how many rounds has each rule found the right share of the SMs?
// `slo` (sched/policy_slo.h) beside GSLICE's published rule in both its readings (PublishedRule in
// tests/sched/slo_world.h), on simulated tenants in virtual time: deterministic. The published
// rules get real numbers of groups, instant changes of share and 5 % of tolerance at the SLO.
//
//   slo-rules [--json FILE]
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "shmctl/base/version.h"
#include "tests/sched/slo_step.h"

namespace {

using namespace gpushare;

std::string rounds_text(const StepResult& result) {
  return result.rounds > 0 ? std::to_string(result.rounds) : "never";
}

void print(const StepResult& result) {
  std::printf("  %6s %6.1f %7d", rounds_text(result).c_str(), result.most_above,
              result.missed_rounds);
}

nlohmann::json as_json(const StepResult& result) {
  nlohmann::json json{{"groups_above_needed", result.most_above},
                      {"rounds_missed_again", result.missed_rounds},
                      {"groups_at_end", result.ended}};
  if (result.rounds > 0) {
    json["rounds"] = result.rounds;
  } else {
    json["rounds"] = nullptr;
  }
  return json;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const char* path = nullptr;
  if (argc == 3 && std::strcmp(argv[1], "--json") == 0) {
    path = argv[2];
  } else if (argc != 1) {
    std::fprintf(stderr, "usage: slo-rules [--json FILE]\n");
    return 2;
  }
  std::printf("%-40s %6s  %21s  %21s  %21s\n", "", "", "published, subtracts", "published, divides",
              "slo");
  std::printf("%-40s %6s", "step (15 groups, rounds of 1 s)", "needs");
  for (int i = 0; i < 3; ++i) std::printf("  %6s %6s %7s", "rounds", "above", "misses");
  std::printf("\n");
  nlohmann::json steps = nlohmann::json::array();
  for (const LoadStep& step : load_steps()) {
    const StepResult subtracts = run_published(step, false);
    const StepResult divides = run_published(step, true);
    const StepResult ours = run_ours(step);
    std::printf("%-40s %6.0f", step.name.c_str(), ours.needed);
    print(subtracts);
    print(divides);
    print(ours);
    std::printf("\n");
    steps.push_back({{"step", step.name},
                     {"groups_needed", ours.needed},
                     {"published_subtracts", as_json(subtracts)},
                     {"published_divides", as_json(divides)},
                     {"slo", as_json(ours)}});
  }
  std::printf(
      "\nrounds: until the share is right, and so for the last ten of %d; above: groups more than "
      "needed;\nmisses: rounds over the SLO by more than 5 %% after it had been met again\n",
      kRounds);
  if (!path) return 0;
  std::ofstream file(path);
  const nlohmann::ordered_json result{
      {"benchmark", "slo_rules"}, {"date", today()},
      {"commit", kCommit},        {"command", "bin/bench/slo-rules --json FILE"},
      {"rounds", kRounds},        {"steps", steps}};
  file << result.dump(2) << '\n';
  file.close();
  if (!file) {
    std::fprintf(stderr, "slo-rules: cannot write %s\n", path);
    return 1;
  }
  return 0;
}
