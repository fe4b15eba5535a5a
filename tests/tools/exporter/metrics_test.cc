// SPDX-License-Identifier: Apache-2.0
#include "tools/exporter/metrics.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "tests/tools/support/fake_plane.h"
#include "tests/tools/support/run_tool.h"
#include "tests/tools/support/temp_dir.h"
#include "tools/exporter/exposition.h"

namespace gpushare {
namespace {

Status live(const FakePlane& fake) {
  PlaneSnapshot snapshot = fake_snapshot(fake, Time{});
  for (size_t t = 0; t < snapshot.tenants.size(); ++t)
    for (GpuRecord& gpu : snapshot.gpus) {
      std::strcpy(gpu.uuid, "GPU-1");
      TenantGpuUse& use = snapshot.tenants[t].record.gpu[gpu.index];
      use.gpu_time_ns = 1'500'000'000 * (t + 1);
      use.target_permille = 250;
      use.share_permille = t == 2 ? 100 : 245;
    }
  return {
      .snapshot = std::move(snapshot), .health = {AgentHealth::State::kLive, {}}, .taken = Time{}};
}

std::string text_of(const Status& status, const std::vector<Workload>& workloads = {}) {
  return metrics_text(status, workloads, std::chrono::seconds(1'700'000'000));
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).contains("\n" + line + "\n");
}

void expect_lines(const std::string& text, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
}

TEST(Exposition, EscapesLabelsAndLeavesEmptyFamiliesOut) {
  Exposition out;
  out.begin("a_total", Exposition::Type::kCounter, "An a.");
  out.begin("b", Exposition::Type::kGauge, "A b.");
  out.add(label_text({{"x", "q\"b\\s\nn\xff\u00e9"}}), 0.5);
  out.add("", uint64_t{18446744073709551615u});
  EXPECT_EQ(out.take(),
            "# HELP b A b.\n# TYPE b gauge\n"
            "b{x=\"q\\\"b\\\\s?n?\u00e9\"} 0.5\nb 18446744073709551615\n");
}

TEST(Exposition, AHistogramAddsItsClassesUp) {
  Exposition out;
  out.begin("h", Exposition::Type::kHistogram, "An h.");
  constexpr double kBounds[] = {0.5, 2};
  constexpr uint64_t kCounts[] = {3, 0, 4};
  out.add_histogram("x=\"y\"", kBounds, kCounts, 12.5);
  EXPECT_EQ(out.take(),
            "# HELP h An h.\n# TYPE h histogram\n"
            "h_bucket{x=\"y\",le=\"0.5\"} 3\nh_bucket{x=\"y\",le=\"2\"} 3\n"
            "h_bucket{x=\"y\",le=\"+Inf\"} 7\nh_sum{x=\"y\"} 12.5\nh_count{x=\"y\"} 7\n");
}

TEST(Metrics, IterationTimesAreAHistogram) {
  Status status = live({.gpus = 1, .processes = 7, .has_targets = false});
  EXPECT_FALSE(text_of(status).contains("gpushare_tenant_iteration_seconds")) << "there were none";
  TenantRecord& research = status.snapshot.tenants[1].record;
  research.iteration_us = 7'500'000;
  research.iteration_counts[time_class_of(20'000)] = 100;
  research.iteration_counts[time_class_of(2'000'000)] = 2;
  const std::string text = text_of(status);
  expect_lines(text,
               {"# TYPE gpushare_tenant_iteration_seconds histogram",
                "gpushare_tenant_iteration_seconds_bucket{tenant=\"research\",le=\"0.01\"} 0",
                "gpushare_tenant_iteration_seconds_bucket{tenant=\"research\",le=\"0.02\"} 100",
                "gpushare_tenant_iteration_seconds_bucket{tenant=\"research\",le=\"1\"} 100",
                "gpushare_tenant_iteration_seconds_bucket{tenant=\"research\",le=\"+Inf\"} 102",
                "gpushare_tenant_iteration_seconds_sum{tenant=\"research\"} 7.5",
                "gpushare_tenant_iteration_seconds_count{tenant=\"research\"} 102"});
}

TEST(Metrics, SayWhatTheControlPlaneSays) {
  Status status = live({.gpus = 1, .processes = 7, .has_waiting = true});
  status.snapshot.tenants[2].record.throttled_ns = 2'500'000'000;
  status.snapshot.tenants[2].record.frozen_turn_ns = 1'500'000'000;
  status.snapshot.tenants[2].record.turns = 12;
  status.snapshot.tenants[2].record.held_ns = 3'500'000'000;
  status.snapshot.tenants[2].record.frozen_user_ns = 60'000'000'000;
  status.snapshot.tenants[1].record.memory_max_bytes = 1 << 20;
  // `default` has three processes on the GPU.
  for (const size_t p : {1, 5}) status.snapshot.processes[p].record.switches_per_s = 40;
  const std::string text = text_of(status);
  expect_lines(
      text,
      {"gpushare_up 1",
       "gpushare_agent_info{driver_version=\"580.159.04\",policy=\"fair\",simulated=\"false\"} 1",
       "gpushare_gpu_busy_ratio{gpu=\"0\",UUID=\"GPU-1\"} 0.95",
       "gpushare_gpu_switches_per_second{gpu=\"0\",UUID=\"GPU-1\"} 400",
       "gpushare_tenant_switches_per_second{tenant=\"default\",gpu=\"0\",UUID=\"GPU-1\"} 80",
       "gpushare_tenant_gpu_memory_bytes{tenant=\"default\",gpu=\"0\",UUID=\"GPU-1\"} 16106127360",
       "gpushare_tenant_weight{tenant=\"research\"} 300",
       "gpushare_tenant_cap_ratio{tenant=\"capped\"} 0.2",
       "gpushare_tenant_memory_max_bytes{tenant=\"research\"} 1048576",
       "gpushare_tenant_throttled_seconds_total{tenant=\"capped\",reason=\"cap\"} 2.5",
       "gpushare_tenant_throttled_seconds_total{tenant=\"capped\",reason=\"turn\"} 1.5",
       "gpushare_tenant_throttled_seconds_total{tenant=\"capped\",reason=\"user\"} 60",
       "gpushare_runs_waiting 1",
       "gpushare_tenant_turns_total{tenant=\"capped\"} 12",
       "gpushare_tenant_held_seconds_total{tenant=\"capped\"} 3.5",
       "gpushare_tenant_gpu_seconds_total{tenant=\"research\",gpu=\"0\",UUID=\"GPU-1\"} 3",
       "gpushare_tenant_share_ratio{tenant=\"capped\",gpu=\"0\",UUID=\"GPU-1\"} 0.1",
       "gpushare_tenant_target_share_ratio{tenant=\"capped\",gpu=\"0\",UUID=\"GPU-1\"} 0.25",
       "gpushare_tenant_shortfall_ratio{tenant=\"capped\",gpu=\"0\",UUID=\"GPU-1\",reason=\"cap\"}"
       " "
       "0.15",
       "gpushare_tenant_shortfall_ratio{tenant=\"research\",gpu=\"0\",UUID=\"GPU-1\","
       "reason=\"none\"} 0.005",
       "gpushare_processes{tenant=\"research\",gpu=\"0\",UUID=\"GPU-1\",state=\"running\"} 1"});
  EXPECT_FALSE(text.contains("cap_ratio{tenant=\"research\"")) << "it has no cap";
  EXPECT_FALSE(text.contains("switches_per_second{tenant=\"research\"")) << "it is unknown";
  EXPECT_FALSE(text.contains("4294967295") || text.contains("18446744073709551615"))
      << "what is unknown is left out";
}

// Two jobs of two processes, of which one has its turn.
void take_turns(Status& status) {
  GpuRecord& gpu = status.snapshot.gpus[0];
  gpu.gaps = 12;
  gpu.gaps_missed = 1;
  gpu.gap_p50_us = 250;
  gpu.gap_p99_us = 1500;
  for (size_t p = 0; p < 4; ++p) {
    ProcessRecord& process = status.snapshot.processes[p].record;
    process.job = p / 2 + 1;
    process.turn = p < 2 ? TurnState::kRunning : TurnState::kQueued;
  }
}

TEST(Metrics, TellOfTurnsWhereJobsTakeThem) {
  Status status = live({.gpus = 1, .processes = 7, .has_targets = false});
  EXPECT_FALSE(text_of(status).contains("gpushare_gpu_turn")) << "there are none";
  take_turns(status);
  const std::string text = text_of(status);
  expect_lines(text, {"gpushare_gpu_turn_gaps_total{gpu=\"0\",UUID=\"GPU-1\"} 12",
                      "gpushare_gpu_turn_gaps_missed_total{gpu=\"0\",UUID=\"GPU-1\"} 1",
                      "gpushare_gpu_turn_gap_p50_seconds{gpu=\"0\",UUID=\"GPU-1\"} 0.00025",
                      "gpushare_gpu_turn_gap_p99_seconds{gpu=\"0\",UUID=\"GPU-1\"} 0.0015",
                      "gpushare_jobs{gpu=\"0\",UUID=\"GPU-1\",state=\"running\"} 1",
                      "gpushare_jobs{gpu=\"0\",UUID=\"GPU-1\",state=\"queued\"} 1"});
}

TEST(Metrics, TargetTimesAreInSeconds) {
  const std::string text = text_of(live({.gpus = 1, .processes = 7, .has_targets = true}));
  const auto of = [](const char* name) {
    return std::string(name) + "{tenant=\"research\",gpu=\"0\",UUID=\"GPU-1\"} ";
  };
  expect_lines(text, {of("gpushare_tenant_iteration_mean_seconds") + "0.0215",
                      of("gpushare_tenant_iteration_p99_seconds") + "0.0301",
                      of("gpushare_tenant_iteration_target_seconds") + "0.02",
                      of("gpushare_tenant_iterations_per_second") + "46.5",
                      of("gpushare_tenant_sms") + "48"});
  EXPECT_FALSE(text.contains("target_seconds{tenant=\"default\"")) << "it has none";
}

TEST(Metrics, ProcessesOfUnknownUseAreCounted) {
  const Status status{.snapshot = fake_snapshot({.gpus = 1, .processes = 7}, Time{}),
                      .health = {AgentHealth::State::kLive, {}},
                      .taken = Time{}};
  const std::string text = text_of(status);
  EXPECT_TRUE(has_line(
      text, "gpushare_processes{tenant=\"default\",gpu=\"0\",UUID=\"\",state=\"observe-only\"} 1"))
      << text;
  EXPECT_FALSE(text.contains("gpushare_tenant_share_ratio"));
}

TEST(Metrics, OfNoLivingAgentNothingOldIsSaid) {
  Status status = live({});
  status.health.state = AgentHealth::State::kGone;
  const std::string text = text_of(status);
  EXPECT_TRUE(has_line(text, "gpushare_up 0"));
  EXPECT_FALSE(text.contains("gpushare_tenant"));
  EXPECT_EQ(text, metrics_without_status());
}

TEST(Metrics, NameEachWorkloadOfATenantOnce) {
  const Status status = live({.gpus = 1, .processes = 7});
  std::vector<Workload> workloads(7);
  workloads[1] = workloads[5] = workloads[6] = {"4711", "", ""};  // all of them in `default`
  workloads[0] = {"", "uid", "id", "lab", "train-0", "main"};     // in `research`
  const std::string text = text_of(status, workloads);
  std::istringstream lines(text);
  std::multiset<std::string> found;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("gpushare_tenant_workload_info")) found.insert(line);
  EXPECT_EQ(found,
            (std::multiset<std::string>{
                "gpushare_tenant_workload_info{tenant=\"default\",slurm_job=\"4711\",pod_uid=\"\","
                "container_id=\"\",namespace=\"\",pod=\"\",container=\"\"} 1",
                "gpushare_tenant_workload_info{tenant=\"research\",slurm_job=\"\",pod_uid=\"uid\","
                "container_id=\"id\",namespace=\"lab\",pod=\"train-0\",container=\"main\"} 1"}));
}

TEST(Metrics, ReasonsOfAShortfall) {
  const TenantGpuUse use{.share_permille = 100, .target_permille = 500};
  std::vector<ProcessRecord> records;
  const auto reason = [&](std::initializer_list<ProcessState> states) {
    records.assign(states.size(), {});
    std::vector<const ProcessRecord*> list;
    for (size_t i = 0; i < records.size(); ++i) {
      records[i].state = std::data(states)[i];
      list.push_back(&records[i]);
    }
    return shortfall_reason(use, list);
  };
  using S = ProcessState;
  EXPECT_EQ(reason({}), "idle");
  EXPECT_EQ(reason({S::kIdle, S::kRunning}), "idle");
  EXPECT_EQ(reason({S::kIdle, S::kWaiting}), "waiting");
  EXPECT_EQ(reason({S::kWaiting, S::kFrozenTurn}), "turn");
  EXPECT_EQ(reason({S::kFrozenTurn, S::kFrozenCap}), "cap");
  EXPECT_EQ(reason({S::kFrozenCap, S::kFrozenUser}), "frozen");
  EXPECT_EQ(shortfall_reason({.share_permille = 491, .target_permille = 500}, {}), "none");
}

// Prometheus itself reads them, and finds nothing against its rules of naming.
TEST(Metrics, PassPromtool) {
  if (!has_program("promtool")) GTEST_SKIP() << "promtool is missing (package prometheus)";
  TempDir dir;
  for (const FakePlane& fake : {FakePlane{.gpus = 2, .processes = 7},
                                {.gpus = 2, .processes = 7, .has_targets = true},
                                {.gpus = 2, .processes = 7, .step = 1, .has_all = true}}) {
    dir.write("metrics", text_of(live(fake), std::vector<Workload>(7, {"1", "u", "c"})));
    const ToolResult result =
        run_tool("sh", {"-c", "promtool check metrics < \"$0\"", dir.at("metrics")});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_EQ(result.err, "");
  }
}

// The names of metrics in a text.
std::set<std::string> names_in(const std::string& text) {
  std::set<std::string> names;
  const std::regex name("gpushare_[a-z0-9_]+");
  for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at)
    names.insert(at->str());
  return names;
}

TEST(Metrics, TheDashboardTheAlertsAndThePageKnowThemAndNoOthers) {
  const Status status = live({.gpus = 1, .processes = 7, .step = 1, .has_all = true});
  const std::string text = text_of(status, std::vector<Workload>(7, {"1", "u", "c"}));
  EXPECT_TRUE(text.contains("phase=\"decode\"} 1\n"));
  std::set<std::string> families, series;  // series: what a query may name
  std::istringstream lines(text);
  for (std::string hash, what, name, type; lines >> hash;) {
    if (hash == "#" && lines >> what >> name >> type && what == "TYPE") {
      families.insert(name);
      if (type != "histogram") series.insert(name);
      if (type == "histogram")
        for (const char* end : {"_bucket", "_sum", "_count"}) series.insert(name + end);
    }
    lines.ignore(1 << 20, '\n');
  }
  EXPECT_GT(families.size(), 30u);
  for (const char* file : {"tools/exporter/grafana-dashboard.json", "tools/exporter/alerts.yml"}) {
    const std::set<std::string> used = names_in(TempDir::read(file));
    EXPECT_GT(used.size(), 8u) << file << ": run the tests in the source folder";
    for (const std::string& name : used) EXPECT_TRUE(series.contains(name)) << file << name;
  }
  const std::set<std::string> described = names_in(TempDir::read("docs/metrics.md"));
  for (const std::string& name : families) EXPECT_TRUE(described.contains(name)) << name;
  for (const std::string& name : described)
    EXPECT_TRUE(families.contains(name) || series.contains(name)) << name;
}

// The indented blocks of a page from a heading on.
std::vector<std::string> queries_of(const std::string& page, const std::string& heading) {
  std::vector<std::string> queries;
  std::istringstream lines(page.substr(std::min(page.find(heading), page.size())));
  bool is_inside = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_query = line.starts_with("    ");
    if (is_query && !is_inside) queries.emplace_back();
    if (is_query) queries.back() += line + "\n";
    is_inside = is_query;
  }
  return queries;
}

// Of a tenant with two workloads, and of a job and a pod that have ended.
TEST(Metrics, ThePagesQueriesFindEachJobAndPodOnce) {
  const auto queries = queries_of(TempDir::read("docs/metrics.md"), "## Queries");
  ASSERT_EQ(queries.size(), 5u) << "run the tests in the source folder";
  if (!has_program("promtool")) GTEST_SKIP() << "promtool is missing (package prometheus)";
  using Json = nlohmann::json;
  Json series = Json::array(), asked = Json::array();
  const auto add = [&](const std::string& name, const std::string& labels, const char* values) {
    series.push_back({{"series", name + "{instance=\"n\"," + labels + "}"}, {"values", values}});
  };
  const auto tenant = [&](const std::string& name, bool has_ended,
                          const std::vector<std::string>& workloads) {
    const std::string labels = "tenant=\"" + name + "\"";
    add("gpushare_tenant_gpu_seconds_total", labels, has_ended ? "0+6x20 stale" : "0+6x120");
    add("gpushare_tenant_share_ratio", labels, has_ended ? "0.5+0x20 stale" : "0.5+0x120");
    for (const std::string& workload : workloads)
      add("gpushare_tenant_workload_info", labels + "," + workload,
          has_ended ? "1+0x20 stale" : "1+0x120");
  };
  tenant("slurm-7", false, {R"(slurm_job="7",container_id="a")", R"(slurm_job="7")"});
  tenant("lab/slurm-8", true, {R"(slurm_job="8")"});
  tenant("research", false, {R"(slurm_job="1")", R"(slurm_job="2")"});
  tenant("k8s-lab.a.1", false,
         {R"(namespace="lab",pod="a",container="x")", R"(namespace="lab",pod="a",container="y")"});
  tenant("k8s-lab.b.2", true, {R"(namespace="lab",pod="b")"});
  const auto ask = [&](const std::string& query, const std::vector<std::string>& found) {
    Json samples = Json::array();
    for (const std::string& labels : found) samples.push_back({{"labels", labels}, {"value", 1}});
    asked.push_back({{"expr", query}, {"eval_time", "2h"}, {"exp_samples", samples}});
  };
  ask("count by (slurm_job) (" + queries[1] + ")", {R"({slurm_job="7"})", R"({slurm_job="8"})"});
  ask("2 * sum by (namespace, pod) (" + queries[2] + ")", {R"({namespace="lab",pod="a"})"});
  ask("count by (namespace, pod) (" + queries[3] + ")",
      {R"({namespace="lab",pod="a"})", R"({namespace="lab",pod="b"})"});
  const TempDir dir;
  const Json test = {{"interval", "1m"}, {"input_series", series}, {"promql_expr_test", asked}};
  dir.write("test.yml", Json{{"tests", Json::array({test})}}.dump());
  const ToolResult held = run_tool("promtool", {"test", "rules", dir.at("test.yml")});
  EXPECT_EQ(held.exit_code, 0) << held.out << held.err;
}

TEST(Metrics, TheAlertsAndTheDashboardAreReadByPromtool) {
  if (!has_program("promtool") || !has_program("python3"))
    GTEST_SKIP() << "promtool or python3 is missing";
  const ToolResult alerts = run_tool("promtool", {"check", "rules", "tools/exporter/alerts.yml"});
  EXPECT_EQ(alerts.exit_code, 0) << alerts.out << alerts.err;
  // Each expression of the dashboard as a rule, with a number for what Grafana puts in.
  const TempDir dir;
  const ToolResult rules = run_tool(
      "python3", {"-c",
                  "import json, re\n"
                  "board = json.load(open('tools/exporter/grafana-dashboard.json'))\n"
                  "ids = [p['id'] for p in board['panels']]\n"
                  "assert len(ids) == len(set(ids))\n"
                  "exprs = [t['expr'] for p in board['panels'] for t in p['targets']]\n"
                  "exprs += [a['expr'] for a in board['annotations']['list']]\n"
                  "exprs = [re.sub(r'\\$__\\w+', '5m', e) for e in exprs]\n"
                  "print(json.dumps({'groups': [{'name': 'g', 'rules': [\n"
                  "    {'record': 'r%d' % i, 'expr': e} for i, e in enumerate(exprs)]}]}))\n"});
  EXPECT_EQ(rules.exit_code, 0) << rules.err;
  dir.write("rules.yml", rules.out);
  const ToolResult checked = run_tool("promtool", {"check", "rules", dir.at("rules.yml")});
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
}

}  // namespace
}  // namespace gpushare
