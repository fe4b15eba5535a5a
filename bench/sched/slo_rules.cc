// SPDX-License-Identifier: Apache-2.0
// After a step of the load, in how many rounds has each rule found the right share of the SMs?
// `slo` (sched/slo/sizer.h) beside GSLICE's published rule in both its readings (PublishedRule in
// tests/sched/support/slo_world.h), on simulated tenants in virtual time: deterministic. The
// published rules get real numbers of groups, instant changes of share and 5 % of tolerance at the
// SLO.
//
// And how many services can one GPU serve so that all meet their targets? A set of SMs for each, as
// the published rule divides them, beside sets that are shared when there are not enough.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/run_file.h"
#include "shmctl/base/version.h"
#include "shmctl/program/command_line.h"
#include "tests/sched/support/slo_services.h"
#include "tests/sched/support/slo_step.h"

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

// Nobody gets more than it wants, and nobody less than another unless it has what it wants.
std::vector<double> max_min(double total, const std::vector<double>& wants) {
  std::vector<double> given(wants.size());
  std::vector<size_t> left(wants.size());
  for (size_t i = 0; i < left.size(); ++i) left[i] = i;
  std::ranges::sort(left, {}, [&](size_t i) { return wants[i]; });
  for (size_t done = 0; done < left.size(); ++done) {
    const double even = total / static_cast<double>(left.size() - done);
    total -= given[left[done]] = std::min(wants[left[done]], even);
  }
  return given;
}

uint32_t met(const Services& services, uint32_t count) {
  uint32_t met = 0;
  for (uint32_t i = 0; i < count; ++i) met += services.is_met(i);
  return met;
}

// Of so many services, how many meet their targets in the last round?
uint32_t met_by_published(uint32_t count) {
  const PublishedRule rule{.divides = true};
  Services services(functions(static_cast<int>(count)), LatencyShape::kGroups / count);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> wants;
    for (uint32_t i = 0; i < count; ++i)
      wants.push_back(rule.next(services.tenants()[i], services.measure(i)));
    const std::vector<double> given = max_min(LatencyShape::kGroups, wants);
    for (uint32_t i = 0; i < count; ++i) services.give(i, given[i]);
  }
  return met(services, count);
}

uint32_t met_by_ours(uint32_t count) {
  Services services(functions(static_cast<int>(count)));
  SloSizer policy(static_cast<uint32_t>(LatencyShape::kGroups));
  for (int round = 0; round < kRounds; ++round) services.round(policy);
  return met(services, count);
}

nlohmann::json pack_services() {
  std::printf("\nservices on one GPU, of which so many meet their targets\n%8s %20s %6s\n",
              "services", "published, a set each", "slo");
  nlohmann::json rows = nlohmann::json::array();
  for (const uint32_t count : {2U, 4U, 6U, 8U, 10U, 12U, 14U, 16U, 18U, 20U}) {
    const uint32_t published = met_by_published(count), ours = met_by_ours(count);
    std::printf("%8u %21u %6u\n", count, published, ours);
    rows.push_back({{"services", count}, {"met_published_divides", published}, {"met_slo", ours}});
  }
  return rows;
}

ExitCode run(const Invocation& in) {
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
  const nlohmann::json packed = pack_services();
  if (!in.has("out")) return kExitOk;
  nlohmann::ordered_json result = bench::run_without_gpu(kCommit, "bin/bench/slo-rules --out FILE");
  result["rounds"] = kRounds;
  result["steps"] = steps;
  result["services"] = packed;
  if (const Result<> added = bench::append_run(in.text("out"), result.dump()); !added) {
    std::fprintf(stderr, "slo-rules: %s\n", added.error().message().c_str());
    return kExitFailure;
  }
  return kExitOk;
}

}  // namespace

int main(int argc, char** argv) {
  const Command program{
      .name = "slo-rules",
      .summary = "compare the policy slo with published rules, on simulated services.",
      .options = {{"out", 0, "FILE", "Add this run to that file, as one line of JSON"}},
      .examples = {"slo-rules --out slo_rules.jsonl"},
      .run = run};
  return run_program(program, argc, argv);
}
