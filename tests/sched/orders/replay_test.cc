// SPDX-License-Identifier: Apache-2.0
// The replay: its ideals come out as an independent program has them, and the orders do as well as
// they must.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <typeinfo>

#include "bench/sched/replay/generator.h"
#include "bench/sched/replay/report.h"
#include "tests/sched/support/policies.h"

namespace gpushare::replay {
namespace {

using testing::HasSubstr;

struct TraceRow {
  Generator generator;
  const char *first_come, *shortest;  // makespan, queuing, mean, p95, p99 in minutes
};
const TraceRow kTraces[] = {
    {{.seed = 3117}, "303.0 167.6 170.60 251.5 252.7", "303.0 48.5 53.33 235.0 259.3"},
    {{.long_jobs = 21, .mid_jobs = 4, .span_min = 54, .bias = 1, .seed = 260},
     "305.0 169.1 172.12 248.8 251.4",
     "305.0 44.4 48.38 236.7 256.9"},
    {{.long_jobs = 17, .mid_jobs = 13, .span_min = 46, .bias = 3, .seed = 1678},
     "305.0 167.2 170.27 250.4 260.7",
     "305.0 55.1 58.17 238.9 263.6"},
};

double minutes(Nanos time) { return std::chrono::duration<double, std::ratio<60>>(time).count(); }

// Half a unit of the last digit is rounded up, as by hand.
std::string decimals(Nanos time, int digits) {
  const Nanos unit = digits == 2 ? 600ms : digits == 1 ? 6s : 60s;
  const auto count = (time + unit / 2) / unit;
  if (digits == 0) return fmt::format("{}", count);
  const int64_t power = digits == 2 ? 100 : 10;
  return fmt::format("{}.{:0{}}", count / power, count % power, digits);
}

std::string row_text(const Figures& figures) {
  return fmt::format("{} {} {} {} {}", decimals(figures.makespan, 1), decimals(figures.queuing, 1),
                     decimals(figures.mean, 2), decimals(figures.p95, 1), decimals(figures.p99, 1));
}

Machine machine_with(std::string_view policy, const Options& options = {},
                     Told told = Told::kLength) {
  return {.policy = policy_named(policy, options).value(), .told = told};
}

Figures run(const Jobs& jobs, const Machine& machine) {
  return figures_of("", jobs, replay(jobs, machine), machine.gpus);
}

TEST(Ideals, AreThoseOfTheIndependentProgram) {
  for (const TraceRow& row : kTraces) {
    const Jobs jobs = generate(row.generator);
    EXPECT_EQ(row_text(figures_of("", jobs, first_come(jobs))), row.first_come);
    EXPECT_EQ(row_text(figures_of("", jobs, shortest_left(jobs))), row.shortest);
  }
  const Jobs jobs = generate({});
  const Figures equal = figures_of("", jobs, processor_sharing(jobs));
  EXPECT_EQ(decimals(equal.makespan, 1), "303.0");
  EXPECT_EQ(decimals(equal.queuing, 0), "0");
  EXPECT_EQ(decimals(equal.mean, 1), "121.3");
  EXPECT_EQ(decimals(equal.p95, 0), "291");
  // Of turns of 3 s it depends on what an arrival does to the turn under way.
  const Figures least = figures_of("", jobs, least_attained(jobs, 3s));
  EXPECT_EQ(decimals(least.queuing, 0), "0");
  EXPECT_NEAR(minutes(least.mean), 121.2, 0.2);
  EXPECT_NEAR(minutes(least.p95), 297, 1);
  const Figures admitted = figures_of("", jobs, least_attained(jobs, 3s, 40));
  EXPECT_NEAR(minutes(admitted.queuing), 20.3, 0.3);
  EXPECT_NEAR(minutes(admitted.mean), 103.5, 0.3);
  EXPECT_NEAR(minutes(admitted.p95), 297, 1);
}

TEST(Replay, FifoIsFirstComeFirstServed) {
  for (const TraceRow& row : kTraces) {
    const Jobs jobs = generate(row.generator);
    EXPECT_EQ(row_text(run(jobs, machine_with("fifo"))), row.first_come);
  }
}

TEST(Replay, SrtfWithLengthsIsWithinHalfAPercentOfTheIdeal) {
  for (const TraceRow& row : kTraces) {
    for (const int scale : {1, 150}) {
      Jobs jobs = generate(row.generator);
      for (Job& job : jobs) job.submit /= scale, job.length /= scale;
      Machine with = machine_with("srtf");
      with.costs.gap = scale == 1 ? 300us : 1000us;
      const Figures best = figures_of("", jobs, shortest_left(jobs));
      const Figures got = run(jobs, with);
      EXPECT_LE(got.mean, best.mean * 1.005) << scale;
      EXPECT_LE(got.makespan, best.makespan * 1.002) << scale;
      EXPECT_LE(got.switches, 120u);
    }
  }
}

// Ratios of FIFO's mean to SRTF's without lengths, for the three traces.
std::vector<double> ratios(const LengthHistory& history, double most_p95) {
  std::vector<double> all;
  for (const TraceRow& row : kTraces) {
    Jobs jobs = generate(row.generator);
    jitter(jobs, 5, 9);
    Machine unknown = machine_with("srtf", {}, Told::kNothing);
    unknown.history = history;
    const Figures fifo = figures_of("", jobs, first_come(jobs));
    const Figures srtf = run(jobs, unknown);
    EXPECT_LE(srtf.p95, fifo.p95 * most_p95);
    all.push_back(minutes(fifo.mean) / minutes(srtf.mean));
  }
  return all;
}

double mean(const std::vector<double>& all) {
  double sum = 0;
  for (const double one : all) sum += one;
  return sum / static_cast<double>(all.size());
}

TEST(Replay, SrtfWithoutLengthsIsBetterThanFifoFromTheFirstDayOn) {
  const std::vector<double> cold = ratios({}, 1.2);
  EXPECT_GE(mean(cold), 1.65);
  EXPECT_GE(std::ranges::min(cold), 1.4);
  LengthHistory day;
  Jobs before = generate({.seed = 77});
  jitter(before, 5, 5);
  for (const Job& job : before) day.add(job.model, job.length);
  const std::vector<double> learnt = ratios(day, 1.1);
  EXPECT_GE(mean(learnt), 2.15);
  EXPECT_GE(std::ranges::min(learnt), 1.9);
}

TEST(Replay, TurnsAreProcessorSharing) {
  for (const TraceRow& row : kTraces) {
    const Jobs jobs = generate(row.generator);
    const Figures best = figures_of("", jobs, processor_sharing(jobs));
    const Figures got = run(jobs, machine_with("turns", {{"turn_ms", 3000}}));
    EXPECT_NEAR(minutes(got.mean) / minutes(best.mean), 1, 0.02);
  }
}

TEST(Replay, FourGpusAreUsedAsOneQueue) {
  Jobs jobs = generate({});
  for (Job& job : jobs) job.submit /= 4;
  Machine four = machine_with("srtf");
  four.gpus = 4;
  const Figures srtf = run(jobs, four);
  EXPECT_LE(minutes(srtf.makespan), 78);
  EXPECT_LE(minutes(srtf.mean), 16.5);
  four = machine_with("fifo");
  four.gpus = 4;
  EXPECT_LE(minutes(run(jobs, four).makespan), 78);
}

// 100 s jobs of 1 s iterations, and one that needs 10 s after a second.
TEST(Replay, AJobStopsAtItsBoundaryAndInMidKernelAfterItsGrace) {
  Jobs jobs = {{.name = "long", .length = 100s, .iterations = 100},
               {.name = "short", .submit = 1500ms, .length = 10s, .iterations = 10}};
  Replay at_boundary = replay(jobs, machine_with("srtf", {{"grace_ms", 2000}}));
  EXPECT_EQ(at_boundary.outcomes[1].started, Time(2s + 300us));
  EXPECT_EQ(at_boundary.stops, 0u);
  EXPECT_EQ(at_boundary.switches, 2u);
  EXPECT_EQ(at_boundary.outcomes[0].ended, Time(110s + 600us));
  Replay stopped = replay(jobs, machine_with("srtf", {{"grace_ms", 100}}));
  EXPECT_EQ(stopped.outcomes[1].started, Time(1600ms + 500us + 300us));
  EXPECT_EQ(stopped.stops, 1u);
  EXPECT_EQ(stopped.outcomes[0].ended, Time(110s + 600us + 500us + 260us));
}

TEST(Replay, AJobThatSaysItIsShortLosesItsPlaceWhenItIsNot) {
  // The liar says 1 s and runs for an hour; as the agent would see it, with what it was told.
  const auto policy = test::make_policy("srtf");
  std::vector<JobView> views(2);
  for (uint64_t id : {1, 2})
    views[id - 1] = {.id = id, .name = "j", .arrived = Time(1h), .period = 10ms, .wants_gpu = true};
  views[1].left = 10min;
  Nanos had{};
  for (Time now(1h); now < Time(2h); now += 100ms) {
    views[0].left = had < 1s ? std::optional(1s - had) : std::nullopt;
    views[0].service = had;
    const Plan plan = policy->plan({.now = now, .jobs = views});
    for (JobView& view : views) {
      const bool runs = std::ranges::find(plan.jobs, view.id, &JobDecision::job)->runs;
      if (runs != view.runs) view.since = now;
      view.runs = runs;
    }
    if (views[0].runs)
      had += 100ms;
    else
      *views[1].left -= 100ms;
    if (*views[1].left <= 0s) break;
  }
  EXPECT_LE(*views[1].left, 0s);
  EXPECT_LT(had, 15min) << "not the hour that it wants";
}

TEST(Replay, ThePoliciesAreTheAgentsOwn) {
  LengthHistory lengths;
  for (const char* name : {"srtf", "turns"}) {
    const std::unique_ptr<Policy> replayed = machine_with(name).policy(lengths);
    const std::unique_ptr<Policy> agents = test::make_policy(name);
    const Policy &one = *replayed, &other = *agents;
    EXPECT_EQ(typeid(one), typeid(other));
  }
}

TEST(Replay, IsTheSameEachTime) {
  const Jobs jobs = generate({});
  const auto text = [&] {
    return figures_json(run(jobs, machine_with("srtf", {}, Told::kNothing))).dump();
  };
  EXPECT_EQ(text(), text());
}

// --- traces

TEST(Trace, ComesBackAsItWasWritten) {
  Jobs jobs = generate({});
  jobs[3].name = "with \"quotes\", and a comma";
  EXPECT_EQ(parse_trace(trace_text(jobs), "t.csv").value(), jobs);
}

TEST(Trace, ColumnsMayStandInAnyOrderAndSomeMayBeMissing) {
  const Jobs jobs = parse_trace(
                        "# made by hand\niterations,job,iteration_us,submit_s,gpus\r\n"
                        "10,b,1000,2.5,\r\n\n5,a,2000.5,1,2\n",
                        "t.csv")
                        .value();
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0],
            (Job{.name = "a", .submit = 1s, .length = 10'002'500ns, .iterations = 5, .gpus = 2}));
  EXPECT_EQ(jobs[1], (Job{.name = "b", .submit = 2500ms, .length = 10ms, .iterations = 10}));
}

TEST(Trace, ErrorsNameTheLineAndWhatIsAllowed) {
  const std::string heading = "job,submit_s,iterations,iteration_us\n";
  const std::pair<std::string, const char*> rows[] = {
      {"", "t.csv:0: no heading; expected: job,submit_s,model"},
      {"job,when\n", "t.csv:1: unknown column 'when'; known: job,submit_s"},
      {"job,job\n", "t.csv:1: the column 'job' is there twice"},
      {"job,submit_s,iterations\n", "t.csv:1: the column 'iteration_us' is missing"},
      {heading + "a,0,1,1\na,0,-3,1\n",
       "t.csv:3: iterations: '-3' is not allowed; allowed: 1 to 1000000000000"},
      {heading + "a,nan,1,1\n", "t.csv:2: submit_s: 'nan' is not allowed"},
      {heading + "a,0,1,inf\n", "t.csv:2: iteration_us: 'inf' is not allowed"},
      {heading + "a,0,1\n", "t.csv:2: 3 fields; the heading has 4"},
      {heading + ",0,1,1\n", "t.csv:2: job: '' is not allowed"},
      {heading + "\"a,0,1,1\n", "t.csv:2: a quotation is not closed"},
      {heading + "a,0,1000000000000,1000000000000\n", "more than 126 years"},
  };
  for (const auto& [text, error] : rows) {
    const auto read = parse_trace(text, "t.csv");
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().message(), HasSubstr(error));
  }
}

TEST(Report, TheTableAndThePictureNameEveryOrder) {
  const Jobs jobs = generate({.n = 10});
  const std::vector<Figures> rows = {figures_of("one", jobs, first_come(jobs)),
                                     figures_of("other", jobs, shortest_left(jobs))};
  for (const std::string& text : {figures_table(rows), completion_svg(rows)}) {
    EXPECT_THAT(text, HasSubstr("one"));
    EXPECT_THAT(text, HasSubstr("other"));
  }
  EXPECT_THAT(completion_svg(rows), testing::EndsWith("</svg>\n"));
}

}  // namespace
}  // namespace gpushare::replay
