// SPDX-License-Identifier: Apache-2.0
#include "sched/tenants/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "tests/sched/support/policies.h"

namespace gpushare {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

std::vector<std::string> messages(const ConfigErrors& errors) {
  std::vector<std::string> all;
  for (const ConfigError& error : errors) all.push_back(error.message());
  return all;
}

Config accept(std::string_view text) {
  auto config = test::parse(text);
  if (!config) {
    for (const auto& message : messages(config.error())) ADD_FAILURE() << message;
    return Config(test::every_policy());
  }
  return std::move(*config);
}

ConfigErrors refuse(std::string_view text) {
  const auto config = test::parse(text);
  EXPECT_FALSE(config.has_value()) << text;
  return config ? ConfigErrors{} : config.error();
}

TEST(Config, OfNothingIsTheDefaults) {
  const Config config = accept("");
  EXPECT_EQ(config.agent.tick_fast, 2ms);
  EXPECT_EQ(config.agent.tick_slow, 100ms);
  EXPECT_EQ(config.agent.log_level, LogLevel::kInfo);
  EXPECT_EQ(config.gpu(0).policy.entry->name, "fair");
  EXPECT_FALSE(config.gpu(0).is_spatial);
  EXPECT_FALSE(config.gpu(0).has_credit);
  EXPECT_EQ(config.gpu(0).policy.options["round_target_ms"], 20);
  EXPECT_EQ(config.gpu(0).policy.options["min_slice_us"], 1000);
  EXPECT_EQ(config.gpu(0).policy.options["idle_turn_ms"], 50);
  EXPECT_THAT(config.tenants, IsEmpty());
  EXPECT_THAT(config.rules, IsEmpty());
}

TEST(Config, ReadsEveryKey) {
  const Config config = accept(R"(
[agent]
log_level = "debug"
tick_fast_ms = 1
tick_slow_ms = 50
round_target_ms = 40
min_slice_us = 2000
idle_turn_ms = 100
knees = "/srv/knees.json"
jobs = "/srv/jobs.csv"
usage = ""
usage_mib = 100
usage_for = "group"

[gpu.0]
sharing = "time"
policy = "fair"
[gpu.1]
policy = "fifo"
grace_ms = 250
[gpu.3]
sharing = "spatial"
gate = "credit"
overlap = true
min_slice_us = 500
[gpu.4]
policy = "slo"
sharing = "spatial"

[tenant.a]
weight = 300
max = "30000 100000"
priority = "high"
memory_max = 8589934592
sm_percent = 25
slo_us = "2000"
)");
  EXPECT_EQ(config.agent.log_level, LogLevel::kDebug);
  EXPECT_EQ(config.agent.tick_fast, 1ms);
  EXPECT_EQ(config.agent.tick_slow, 50ms);
  EXPECT_EQ(config.agent.knees, "/srv/knees.json");
  EXPECT_EQ(config.agent.jobs, "/srv/jobs.csv");
  EXPECT_EQ(config.agent.usage, "");
  EXPECT_EQ(config.agent.usage_bytes, 100U << 20);
  EXPECT_FALSE(config.agent.is_usage_for_all);
  const struct {
    uint32_t gpu;
    std::string_view policy;
    bool is_spatial;
    int64_t min_slice_us;
  } gpus[] = {{0, "fair", false, 2000},
              {3, "fair", true, 500},
              {4, "slo", true, 2000},
              {9, "fair", false, 2000}};
  for (const auto& row : gpus) {
    const GpuConfig& gpu = config.gpu(row.gpu);
    EXPECT_EQ(gpu.policy.entry->name, row.policy) << row.gpu;
    EXPECT_EQ(gpu.is_spatial, row.is_spatial) << row.gpu;
    EXPECT_EQ(gpu.policy.options["min_slice_us"], row.min_slice_us) << row.gpu;
    EXPECT_EQ(gpu.policy.options["round_target_ms"], 40) << "of all GPUs";
    EXPECT_EQ(gpu.policy.options["idle_turn_ms"], 100) << "of all GPUs";
  }
  EXPECT_TRUE(config.gpu(3).has_credit);
  EXPECT_FALSE(config.gpu(4).has_credit);
  EXPECT_TRUE(config.gpu(3).has_overlap);
  EXPECT_FALSE(config.gpu(4).has_overlap);
  EXPECT_EQ(config.gpu(1).policy.entry->name, "fifo");
  EXPECT_EQ(config.gpu(1).policy.options["grace_ms"], 250);
  EXPECT_EQ(config.policy_names(5), "fair-fifo-slo");
  ASSERT_THAT(config.tenants, SizeIs(1));
  EXPECT_EQ(config.tenants[0].name, "a");
  TenantSettings settings;
  ASSERT_TRUE(apply_settings(settings, config.tenants[0].settings).has_value());
  EXPECT_EQ(settings, (TenantSettings{.weight = 300,
                                      .priority = Priority::kHigh,
                                      .cap = Cap{30ms, 100ms},
                                      .memory_max = uint64_t{8} << 30,
                                      .sm_percent = 25,
                                      .slo = 2ms}));
}

TEST(Config, KeepsTenantsAndRulesInTheOrderOfTheFile) {
  const Config config = accept(R"(
[tenant.zoo]
match = [{ user = 1002 }, { command = "b*", user = "alice" }]
[tenant.ant]
match = [
  { cgroup = "/x/*" },
]
[tenant.zoo2]
match = [{ container = "web-*", label = "team=vision*" }]
)");
  ASSERT_THAT(config.tenants, SizeIs(3));
  EXPECT_EQ(config.tenants[0].name, "zoo");
  EXPECT_EQ(config.tenants[1].name, "ant");
  EXPECT_THAT(config.rules, ElementsAre(Rule{"zoo", {}, "1002", {}}, Rule{"zoo", {}, "alice", "b*"},
                                        Rule{"ant", "/x/*", {}, {}},
                                        Rule{"zoo2", {}, {}, {}, "web-*", "team=vision*"}));
}

TEST(Config, TheExampleIsAcceptedAndShowsEveryKey) {
  const auto config = load_config("sched/gpushare.toml.example", test::every_policy());
  ASSERT_TRUE(config.has_value()) << messages(config.error())[0];
  EXPECT_THAT(config->rules, SizeIs(8));
  std::ifstream file("sched/gpushare.toml.example");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  for (const auto key : setting_keys()) EXPECT_THAT(text, HasSubstr(std::string(key) + " = "));
  // What it comments out as defaults are the defaults.
  std::string enabled;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    std::string line = text.substr(begin, end - begin + 1);
    if (line.starts_with("# [") || (line.starts_with("# ") && line.find(" = ") < 20))
      line.erase(0, 2);
    enabled += line;
    begin = end + 1;
  }
  const Config all = accept(enabled);
  EXPECT_EQ(all.agent.tick_slow, AgentConfig().tick_slow);
  EXPECT_EQ(all.agent.knees, AgentConfig().knees);
  EXPECT_EQ(all.agent.jobs, AgentConfig::kDefaultJobs);
  EXPECT_EQ(all.agent.usage, AgentConfig::kDefaultUsage);
  EXPECT_EQ(all.gpu(0), Config(test::every_policy()).gpu(0));
  EXPECT_EQ(all.gpu(1).policy, PolicyChoice(*find_policy(test::every_policy(), "srtf")));
  ASSERT_EQ(all.tenants[0].name, "default");
  EXPECT_THAT(all.tenants[0].settings, SizeIs(setting_keys().size()));
  TenantSettings settings;
  ASSERT_TRUE(apply_settings(settings, all.tenants[0].settings).has_value());
  EXPECT_EQ(settings, TenantSettings());
}

struct BadRow {
  const char* description;
  const char* text;
  const char* message;  // begins so
};

class BadConfig : public testing::TestWithParam<BadRow> {};
void PrintTo(const BadRow& row, std::ostream* out) { *out << row.description; }

TEST_P(BadConfig, IsRefusedWithPlaceKeyAndWhatIsAllowed) {
  const ConfigErrors errors = refuse(GetParam().text);
  ASSERT_THAT(errors, SizeIs(1));
  EXPECT_THAT(errors[0].message(), StartsWith(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Rows, BadConfig,
    testing::Values(
        BadRow{"syntax", "[agent]\nlog_level = \n", "gpushare.toml:2:13: "},
        BadRow{"a header that cannot be a key", "[!agent]\n", "gpushare.toml:1:2: "},
        BadRow{"a letter that is no blank", "[tenant\u02de]\n", "gpushare.toml:1:8: "},
        BadRow{"key twice", "[gpu.0]\npolicy = 'fair'\npolicy = 'fair'\n", "gpushare.toml:3:"},
        BadRow{"not UTF-8", "a = \"\xff\xfe\"", "gpushare.toml:1:"},
        BadRow{"section", "[agnet]\n",
               "gpushare.toml:1:2: agnet: unknown key; did you mean 'agent'?"},
        BadRow{"root key", "weight = 3\n",
               "gpushare.toml:1:1: weight: unknown key; allowed: agent, gpu, mps, tenant"},
        BadRow{"agent key", "[agent]\ntick_fast = 2\n",
               "gpushare.toml:2:1: agent.tick_fast: unknown key; did you mean 'tick_fast_ms'?"},
        BadRow{"tenant key", "[tenant.a]\n  wieght = 2\n",
               "gpushare.toml:2:3: tenant.a.wieght: unknown key; did you mean 'weight'?"},
        BadRow{"rule key", "[tenant.a]\nmatch = [{ comand = 'x' }]\n",
               "gpushare.toml:2:12: tenant.a.match.comand: unknown key; did you mean 'command'?"},
        BadRow{"GPU by name", "[gpu.h200]\n",
               "gpushare.toml:1:6: gpu.h200: must be the index of a GPU, 0 to 15"},
        BadRow{"GPU too high", "[gpu.16]\n",
               "gpushare.toml:1:6: gpu.16: must be the index of a GPU, 0 to 15"},
        BadRow{"GPU key", "[gpu.0]\nshare = 'time'\n",
               "gpushare.toml:2:1: gpu.0.share: unknown key; allowed: sharing, policy"},
        BadRow{"GPU policy", "[gpu.0]\npolicy = 'unfair'\n",
               "gpushare.toml:2:10: gpu.0.policy: must be one of \"fair\", \"slo\", \"fifo\""},
        BadRow{"GPU policy by its name of before", "[gpu.0]\npolicy = 'shares'\n",
               "gpushare.toml:2:10: gpu.0.policy: must be one of \"fair\", \"slo\", \"fifo\", "
               "\"srtf\", \"turns\", \"tpot\"; what "
               "was "
               "\"shares\" is \"fair\" now"},
        BadRow{
            "option of another policy", "[gpu.0]\npolicy = 'fifo'\nidle_turn_ms = 50\n",
            "gpushare.toml:3:1: gpu.0.idle_turn_ms: unknown key; allowed: sharing, policy, gate, "
            "overlap, turn_ms, grace_ms, patience_s"},
        BadRow{"option out of range", "[gpu.0]\npolicy = 'fifo'\ngrace_ms = 10001\n",
               "gpushare.toml:3:12: gpu.0.grace_ms: must be a whole number from 0 to 10000"},
        BadRow{"options that do not fit", "[gpu.0]\nmin_slice_us = 30000\n",
               "gpushare.toml:1:1: gpu.0.min_slice_us: must not be above round_target_ms"},
        BadRow{"slo in turns", "[gpu.0]\npolicy = 'slo'\n",
               "gpushare.toml:1:1: gpu.0.policy: \"slo\" needs sharing = \"spatial\""},
        BadRow{"knees", "[agent]\nknees = 'here'\n",
               "gpushare.toml:2:9: agent.knees: must be the path of a file"},
        BadRow{"usageMib", "[agent]\nusage_mib = 7\n",
               "gpushare.toml:2:13: agent.usage_mib: must be a whole number from 8 to 65536"},
        BadRow{"usageFor", "[agent]\nusage_for = \"me\"\n",
               "gpushare.toml:2:13: agent.usage_for: must be \"all\" or \"group\""},
        BadRow{"jobs", "[agent]\njobs = 512\n",
               "gpushare.toml:2:8: agent.jobs: must be the path of a file"},
        BadRow{"gate", "[gpu.0]\nsharing = 'spatial'\ngate = 'gpu'\n",
               "gpushare.toml:3:8: gpu.0.gate: must be \"host\" or \"credit\""},
        BadRow{"gate in turns", "[gpu.0]\ngate = 'credit'\n",
               "gpushare.toml:1:1: gpu.0.gate: \"credit\" needs sharing = \"spatial\""},
        BadRow{"overlap", "[gpu.0]\nsharing = 'spatial'\noverlap = 1\n",
               "gpushare.toml:3:11: gpu.0.overlap: must be true or false"},
        BadRow{"an option of spatial sharing", "[gpu.0]\nlend_after_ms = 4\n",
               "gpushare.toml:1:1: gpu.0.lend_after_ms: needs sharing = \"spatial\""},
        BadRow{"overlap in turns", "[gpu.0]\noverlap = true\n",
               "gpushare.toml:1:1: gpu.0.overlap: true needs sharing = \"spatial\""},
        BadRow{
            "overlap with a policy of its own",
            "[gpu.0]\nsharing = 'spatial'\npolicy = 'slo'\noverlap = true\n",
            "gpushare.toml:1:1: gpu.0.overlap: true has no effect with the policy \"slo\", which "
            "decides itself who runs at once"},
        BadRow{"sharing", "[gpu.0]\nsharing = 'mps'\n",
               "gpushare.toml:2:11: gpu.0.sharing: must be \"time\" or \"spatial\""},
        BadRow{"agent is no table", "agent = 3\n",
               "gpushare.toml:1:9: agent: must be a table: [agent]"},
        BadRow{"array of tables", "[[tenant.a]]\nweight = 2\n",
               "gpushare.toml:1:1: tenant.a: must be a table"},
        BadRow{"tenant name", "[tenant.'a b']\n",
               "gpushare.toml:1:9: tenant.a b: 'a b' is not allowed; allowed: 1 to 63 of"},
        BadRow{"weight", "[tenant.a]\nweight = 0\n",
               "gpushare.toml:2:10: tenant.a.weight: '0' is not allowed; allowed: 1 to 10000"},
        BadRow{"negative", "[tenant.a]\nweight = -3\n",
               "gpushare.toml:2:10: tenant.a.weight: '-3' is not allowed; allowed: 1 to 10000"},
        BadRow{"fraction", "[tenant.a]\nweight = 1.5\n",
               "gpushare.toml:2:10: tenant.a.weight: must be a number, a text, true or false; "
               "allowed: 1 to"},
        BadRow{
            "cap", "[tenant.a]\nmax = \"130%\"\n",
            "gpushare.toml:2:7: tenant.a.max: '130%' is not allowed; allowed: max, a percentage"},
        BadRow{"cap as number", "[tenant.a]\nmax = 30\n",
               "gpushare.toml:2:7: tenant.a.max: '30' is not allowed"},
        BadRow{
            "priority", "[tenant.a]\npriority = 'low'\n",
            "gpushare.toml:2:12: tenant.a.priority: 'low' is not allowed; allowed: idle, normal"},
        BadRow{"log level", "[agent]\nlog_level = 'loud'\n",
               "gpushare.toml:2:13: agent.log_level: must be \"debug\", \"info\""},
        BadRow{
            "policy of all GPUs", "[agent]\npolicy = 'fair'\n",
            "gpushare.toml:2:1: agent.policy: each GPU has its own policy now: [gpu.0] policy = "},
        BadRow{"out of range", "[agent]\ntick_fast_ms = 0\n",
               "gpushare.toml:2:16: agent.tick_fast_ms: must be a whole number from 1 to 100"},
        BadRow{"number as text", "[agent]\ntick_fast_ms = '2'\n",
               "gpushare.toml:2:16: agent.tick_fast_ms: must be a whole number from 1 to 100"},
        BadRow{"ticks the wrong way round", "[agent]\ntick_fast_ms = 50\ntick_slow_ms = 20\n",
               "gpushare.toml:1:1: agent.tick_fast_ms: must not be above tick_slow_ms"},
        BadRow{"slice above the round", "[agent]\nmin_slice_us = 30000\n",
               "gpushare.toml:1:1: agent.min_slice_us: must not be above round_target_ms"},
        BadRow{"match is no list", "[tenant.a]\nmatch = 'x'\n",
               "gpushare.toml:2:9: tenant.a.match: must be a list of rules"},
        BadRow{"rule is no table", "[tenant.a]\nmatch = ['x']\n",
               "gpushare.toml:2:10: tenant.a.match: must be a rule such as"},
        BadRow{"empty rule", "[tenant.a]\nmatch = [{}]\n",
               "gpushare.toml:2:10: tenant.a.match: must be a rule such as"},
        BadRow{"empty glob", "[tenant.a]\nmatch = [{ cgroup = '' }]\n",
               "gpushare.toml:2:21: tenant.a.match.cgroup: must be a glob (not empty)"},
        BadRow{"empty container", "[tenant.a]\nmatch = [{ container = '' }]\n",
               "gpushare.toml:2:24: tenant.a.match.container: must be a glob (not empty)"},
        BadRow{
            "label without a value", "[tenant.a]\nmatch = [{ label = 'team' }]\n",
            "gpushare.toml:2:20: tenant.a.match.label: must be KEY=GLOB, as in \"team=vision*\""},
        BadRow{"label without a key", "[tenant.a]\nmatch = [{ label = '=x' }]\n",
               "gpushare.toml:2:20: tenant.a.match.label: must be KEY=GLOB"},
        BadRow{"negative uid", "[tenant.a]\nmatch = [{ user = -1 }]\n",
               "gpushare.toml:2:19: tenant.a.match.user: must be a user's name or uid"}));

TEST(Config, ReportsEveryMistakeInTheOrderOfTheFile) {
  const ConfigErrors errors = refuse(R"([agent]
polycy = "fair"
tick_slow_ms = 1
[tenant.b]
weight = 0
max = "x"
[tenant.a]
priority = 1
match = [{ user = "" }, { comand = "x" }]
[other]
)");
  std::vector<uint32_t> lines;
  for (const ConfigError& error : errors) lines.push_back(error.line);
  EXPECT_THAT(lines, ElementsAre(2, 3, 5, 6, 8, 9, 9, 10));
}

TEST(Config, RefusesMoreTenantsThanThereAreSlots) {
  std::string text;
  for (int i = 0; i < 1023; ++i) text += "[tenant.t" + std::to_string(i) + "]\n";
  EXPECT_THAT(accept(text).tenants, SizeIs(1023));
  EXPECT_THAT(refuse(text + "[tenant.more]\n"), SizeIs(1));
  EXPECT_THAT(accept(text + "[tenant.default]\n").tenants, SizeIs(1024));
}

TEST(ConfigFile, ThatIsMissingSaysSoByItsCode) {
  const auto config = load_config("/nonexistent/gpushare.toml", test::every_policy());
  ASSERT_FALSE(config.has_value());
  ASSERT_THAT(config.error(), SizeIs(1));
  EXPECT_EQ(config.error()[0].code, std::errc::no_such_file_or_directory);
  EXPECT_EQ(config.error()[0].message(), "/nonexistent/gpushare.toml: No such file or directory");
}

TEST(ConfigFile, ThatIsADirectoryOrEndlessIsRefused) {
  ASSERT_FALSE(load_config("/", test::every_policy()).has_value());
  const auto endless = load_config("/dev/zero", test::every_policy());
  ASSERT_FALSE(endless.has_value());
  EXPECT_EQ(endless.error()[0].code, std::errc::file_too_large);
}

}  // namespace
}  // namespace gpushare
