// SPDX-License-Identifier: Apache-2.0
// What would each order have done to these jobs? Replays a trace of jobs in virtual time, with the
// policies of the agent themselves, and prints when the jobs are through beside what is possible at
// best. Deterministic: the same figures on every machine.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>

#include "bench/sched/replay/generator.h"
#include "bench/sched/replay/report.h"
#include "sched/orders/trace.h"
#include "shmctl/base/version.h"
#include "shmctl/program/command_line.h"

namespace {

using namespace gpushare;
using namespace gpushare::replay;

// Of the order `turns`, where --turn-ms is not given.
constexpr int64_t kMostTurns = 5'000;

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// "n=100,long=19": what is not named is as in `generator` already. Returns what is wrong.
std::string read_generator(std::string_view text, Generator& generator) {
  constexpr std::string_view kAllowed =
      "n=1 to 100000, long, mid=0 to 100000, span_min=0 to 1000000, bias=-20 to 20, seed=0 on";
  for (const std::string_view part : split(text)) {
    const size_t sign = part.find('=');
    const std::string_view key = part.substr(0, sign);
    const std::string_view value = sign == std::string_view::npos ? "" : part.substr(sign + 1);
    const auto take = [&](auto& member, auto least, auto most) {
      auto number = member;
      const auto [rest, error] = std::from_chars(value.begin(), value.end(), number);
      if (error != std::errc{} || rest != value.end() || !(number >= least && number <= most))
        return false;
      member = number;
      return true;
    };
    const bool is_taken = key == "n"          ? take(generator.n, 1U, 100'000U)
                          : key == "long"     ? take(generator.long_jobs, 0U, 100'000U)
                          : key == "mid"      ? take(generator.mid_jobs, 0U, 100'000U)
                          : key == "span_min" ? take(generator.span_min, 0.0, 1e6)
                          : key == "bias"     ? take(generator.bias, -20.0, 20.0)
                          : key == "seed"     ? take(generator.seed, uint64_t{0}, UINT64_MAX)
                                              : false;
    if (!is_taken)
      return fmt::format("--generate: '{}' is not allowed; allowed: {}", part, kAllowed);
  }
  return {};
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file) return true;
  std::fprintf(stderr, "order-replay: cannot write %s\n", path.c_str());
  return false;
}

void scale(Jobs& jobs, double divisor) {
  const auto scaled = [divisor](Nanos time) {
    return Nanos(static_cast<Nanos::rep>(static_cast<double>(time.count()) / divisor));
  };
  for (Job& job : jobs) {
    job.submit = scaled(job.submit);
    job.length = std::max(scaled(job.length), Nanos(1));
  }
}

Nanos work_of(const Jobs& jobs) {
  Nanos work{};
  for (const Job& job : jobs) work += job.length;
  return work;
}

// What the command line says of the policies.
Options options_of(const Invocation& in, const Jobs& jobs) {
  const int64_t turn_ms = in.has("turn-ms")
                              ? static_cast<int64_t>(in.whole("turn-ms"))
                              : std::clamp<int64_t>(work_of(jobs) / 1ms / kMostTurns, 25, 10'000);
  return {{"turn_ms", turn_ms}, {"patience_s", static_cast<int64_t>(in.whole("patience-s"))}};
}

std::vector<Figures> ideals(const Jobs& jobs, uint32_t gpus) {
  std::vector<Figures> rows;
  if (gpus > 1) return rows;
  rows.push_back(figures_of("ideal: first come", jobs, first_come(jobs)));
  rows.push_back(figures_of("ideal: shortest left", jobs, shortest_left(jobs)));
  rows.push_back(figures_of("ideal: processor sharing", jobs, processor_sharing(jobs)));
  return rows;
}

ExitCode run(const Invocation& in) {
  Jobs jobs;
  const auto fail = [](const Error& error) {
    std::fprintf(stderr, "order-replay: %s\n", error.message().c_str());
    return kExitFailure;
  };
  if (in.has("trace") && in.has("generate"))
    return in.wrong("--trace and --generate exclude each other");
  if (in.has("trace")) {
    auto read = read_trace(in.text("trace"));
    if (!read) return fail(read.error());
    jobs = std::move(*read);
  } else {
    Generator generator;
    if (const std::string wrong = read_generator(in.text("generate"), generator); !wrong.empty())
      return in.wrong(wrong);
    jobs = generate(generator);
  }
  if (jobs.empty()) return in.wrong("the trace has no jobs");
  const Nanos first = jobs.front().submit;  // only the differences count
  for (Job& job : jobs) job.submit -= first;
  if (in.has("jitter")) jitter(jobs, in.number("jitter"), in.whole("jitter-seed"));
  scale(jobs, in.number("scale"));
  for (const Job& job : jobs)
    if (job.gpus > 1)
      return in.wrong(
          fmt::format("the job '{}' works on {} GPUs at once; only jobs on one GPU are replayed",
                      job.name, job.gpus));
  if (in.has("write-trace") && !write_file(in.text("write-trace"), trace_text(jobs)))
    return kExitFailure;

  LengthHistory history;
  if (in.has("history")) {
    const auto past = read_trace(in.text("history"));
    if (!past) return fail(past.error());
    for (const Job& job : *past) history.add(job.model, job.length);
  }
  const std::string told = in.text("told");
  if (told != "length" && told != "command" && told != "nothing")
    return in.wrong(
        fmt::format("--told: '{}' is not allowed; allowed: length, command, nothing", told));
  const auto gpus = static_cast<uint32_t>(in.whole("gpus"));
  std::vector<Figures> rows;
  const std::string order_list = in.text("order");
  for (const std::string_view name : split(order_list)) {
    const auto policy = policy_named(name, options_of(in, jobs));
    if (!policy) return in.wrong(fmt::format("--order: '{}' is no policy that orders jobs", name));
    const Replay replay =
        gpushare::replay::replay(jobs, {.policy = *policy,
                                        .costs = {.gap = Micros(in.whole("gap-us"))},
                                        .told = told == "length"    ? Told::kLength
                                                : told == "command" ? Told::kCommand
                                                                    : Told::kNothing,
                                        .gpus = gpus,
                                        .history = history});
    rows.push_back(figures_of(std::string(name), jobs, replay, gpus));
  }
  const std::vector<Figures> best = ideals(jobs, gpus);
  const Nanos bound = work_bound(jobs, gpus) - jobs.front().submit;
  std::vector<Figures> all = rows;
  all.insert(all.end(), best.begin(), best.end());
  if (in.has("svg") && !write_file(in.text("svg"), completion_svg(all))) return kExitFailure;
  if (in.has("json")) {
    nlohmann::ordered_json json{{"jobs", jobs.size()}, {"gpus", gpus}, {"told", told}};
    json["orders"] = nlohmann::ordered_json::array();
    for (const Figures& row : rows) json["orders"].push_back(figures_json(row));
    json["ideals"] = nlohmann::ordered_json::array();
    for (const Figures& row : best) json["ideals"].push_back(figures_json(row));
    json["work_bound_s"] = static_cast<double>(bound / 1us) / 1e6;
    std::printf("%s\n", json.dump(2).c_str());
    return finish_output("order-replay", kExitOk);
  }
  std::printf("%zu jobs on %u GPU%s; all work could be done after %.2f min at best\n\n%s",
              jobs.size(), gpus, gpus == 1 ? "" : "s",
              std::chrono::duration<double, std::ratio<60>>(bound).count(),
              figures_table(all).c_str());
  return finish_output("order-replay", kExitOk);
}

}  // namespace

int main(int argc, char** argv) {
  const Command program{
      .name = "order-replay",
      .summary = "say what each order of jobs would have done to a trace of jobs.",
      .details =
          "The policies are those of the agent, in virtual time. A trace is a file of CSV with the "
          "columns job, submit_s, model, iterations, iteration_us, persistent_mib, ephemeral_mib, "
          "knee_permille and gpus; the agent writes one (`jobs` in gpushare.toml(5)), and "
          "sacct_trace.py makes one from Slurm's accounting. Without a trace, jobs are made as in "
          "Salus' evaluation.",
      .options =
          {{"trace", 0, "FILE", "The jobs, as CSV"},
           {"generate", 0, "SPEC", "Or jobs of 1, 5 and 10 minutes, from what SPEC names",
            "n=100,long=19,mid=8,span_min=51,bias=3,seed=3117"},
           {"order", 0, "LIST", "The policies, separated by commas", "fifo,srtf,turns"},
           {.name = "told",
            .value = "length|command|nothing",
            .help = "What is known of a job before it runs: its length, what other runs of its "
                    "model took, or nothing",
            .otherwise = "length",
            .words = "length command nothing"},
           {"history", 0, "FILE",
            "A trace of jobs that have finished before, from which lengths are learnt"},
           number_option("gpus", "N", "GPUs of the machine", {1, 64, true}, "1"),
           number_option("scale", "D", "Divide all times of the trace by this", {0.001, 1e6}, "1"),
           number_option("jitter", "PERCENT", "Make each job up to so much longer or shorter",
                         {0, 90}),
           number_option("jitter-seed", "N", "Of the jitter", {0, 0x1p63, true}, "9"),
           number_option("gap-us", "US", "What it costs to give the GPU to another job",
                         {0, 1e7, true}, "300"),
           number_option("turn-ms", "MS",
                         "As in gpushare.toml(5); otherwise such that there are at most 5000 turns",
                         {1, 10'000, true}),
           number_option("patience-s", "S", "As in gpushare.toml(5)", {0, 86'400, true}, "0"),
           {.name = "json", .help = "Print JSON"},
           {"svg", 0, "FILE", "Draw the completion times of each order"},
           {"write-trace", 0, "FILE", "Write the jobs as they are replayed"}},
      .examples = {"order-replay", "order-replay --told nothing --jitter 5",
                   "order-replay --trace last-week.csv --gpus 4 --svg last-week.svg"},
      .run = run};
  return run_program(program, argc, argv);
}
