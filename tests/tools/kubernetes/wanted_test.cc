// SPDX-License-Identifier: Apache-2.0
#include "tools/kubernetes/wanted.h"

#include <gtest/gtest.h>

#include <random>

#include "shmctl/settings/tenant_settings.h"

namespace gpushare {
namespace {

using Annotations = std::map<std::string, std::string, std::less<>>;
using Limits = std::map<std::string, uint64_t, std::less<>>;

Pod pod_with(Limits limits, Annotations annotations = {}) {
  Pod pod;
  pod.uid = pod.object_uid = "0a1b2c3d-4444-5555-6666-777777777777";
  pod.name_space = "lab";
  pod.name = "train";
  pod.limits = std::move(limits);
  pod.annotations = std::move(annotations);
  return pod;
}

const ShareRules kTen = [] {
  ShareRules rules;
  rules.shares = 10;
  return rules;
}();

TenantSettings settings_of(const Wanted& wanted) {
  TenantSettings settings;
  for (const auto& [key, value] : wanted.settings) {
    const auto applied = apply_setting(settings, key, value);
    EXPECT_TRUE(applied) << key << "=" << value;
  }
  return settings;
}

struct Row {
  const char* about;
  Limits limits;
  Annotations annotations;
  uint32_t weight;
  std::optional<uint64_t> memory;
  bool is_complained_of;
};

class KubernetesWanted : public ::testing::TestWithParam<Row> {};

TEST_P(KubernetesWanted, IsWhatWasCountedAndSaid) {
  const Row& row = GetParam();
  const auto wanted = wanted_of(pod_with(row.limits, row.annotations), kTen);
  ASSERT_TRUE(wanted);
  const TenantSettings settings = settings_of(*wanted);
  EXPECT_EQ(settings.weight, row.weight);
  EXPECT_EQ(settings.memory_max, row.memory);
  EXPECT_EQ(wanted->complaints.empty(), !row.is_complained_of);
}

constexpr uint64_t kGiB = 1ULL << 30;
INSTANTIATE_TEST_SUITE_P(
    All, KubernetesWanted,
    ::testing::Values(
        Row{"shares", {{"gpushare.io/share", 7}}, {}, 700, {}, false},
        Row{"two whole GPUs: the weight is of each",
            {{"gpushare.io/share", 20}},
            {},
            1000,
            {},
            false},
        Row{"memory",
            {{"gpushare.io/share", 3}, {"gpushare.io/memory", 4}},
            {},
            300,
            4 * kGiB,
            false},
        Row{"lowered", {{"gpushare.io/share", 7}}, {{"gpushare.io/share", "2.5"}}, 250, {}, false},
        Row{"not raised", {{"gpushare.io/share", 2}}, {{"gpushare.io/share", "9"}}, 200, {}, true},
        Row{"no number", {{"gpushare.io/share", 2}}, {{"gpushare.io/share", "nan"}}, 200, {}, true},
        Row{"nor this", {{"gpushare.io/share", 2}}, {{"gpushare.io/share", "-1"}}, 200, {}, true},
        Row{"nor this", {{"gpushare.io/share", 2}}, {{"gpushare.io/share", "1x"}}, 200, {}, true},
        Row{"KAI", {}, {{"gpu-fraction", "0.5"}}, 500, {}, false},
        Row{"KAI beyond one", {{"gpushare.io/share", 1}}, {{"gpu-fraction", "2"}}, 100, {}, true},
        Row{"KAI's memory", {}, {{"gpu-memory", "2048"}}, 100, 2 * kGiB, false},
        Row{"HAMi's limits",
            {{"nvidia.com/gpucores", 30}, {"nvidia.com/gpumem", 1024}},
            {},
            300,
            kGiB,
            false},
        Row{"HAMi's words",
            {},
            {{"nvidia.com/gpucores", "30"}, {"nvidia.com/gpumem", "1024"}},
            300,
            kGiB,
            false},
        Row{"not raised beyond HAMi's limit",
            {{"nvidia.com/gpucores", 30}},
            {{"gpushare.io/share", "9"}},
            300,
            {},
            true},
        Row{"lowered from HAMi's limit",
            {{"nvidia.com/gpucores", 30}},
            {{"gpushare.io/share", "2"}},
            200,
            {},
            false},
        Row{"nobody counted the shares",
            {{"gpushare.io/memory", 4}},
            {{"gpushare.io/share", "10"}},
            100,
            4 * kGiB,
            false},
        Row{"HAMi's word is not raised by ours",
            {},
            {{"nvidia.com/gpucores", "30"}, {"gpushare.io/share", "10"}},
            300,
            {},
            false},
        Row{"memory lowered",
            {{"gpushare.io/share", 1}, {"gpushare.io/memory", 4}},
            {{"gpushare.io/memory", "1Gi"}},
            100,
            kGiB,
            false},
        Row{"memory not raised",
            {{"gpushare.io/share", 1}, {"gpushare.io/memory", 4}},
            {{"gpushare.io/memory", "9Gi"}},
            100,
            4 * kGiB,
            true},
        Row{"high is not allowed",
            {{"gpushare.io/share", 1}},
            {{"gpushare.io/priority", "high"}},
            100,
            {},
            true},
        Row{"a cap that is none",
            {{"gpushare.io/share", 1}},
            {{"gpushare.io/max", "200%"}},
            100,
            {},
            true}),
    [](const auto& row) { return "row" + std::to_string(row.index); });

TEST(KubernetesWishes, APodThatAsksForNothingIsNotOurs) {
  EXPECT_FALSE(wanted_of(pod_with({{"cpu", 4}}, {{"x", "y"}}), kTen));
}

// Nobody has counted it.
TEST(KubernetesWishes, APodsOwnWordGivesNoWeight) {
  EXPECT_FALSE(wanted_of(pod_with({}, {{"gpushare.io/share", "10"}}), kTen));
  ShareRules rules = kTen;
  rules.gpu_memory = 80 * kGiB;
  const auto by_memory = [&](const char* key, const char* word) {
    const auto wanted = wanted_of(pod_with({}, {{key, word}}), rules);
    return wanted ? settings_of(*wanted).weight : 0;
  };
  EXPECT_EQ(by_memory("gpushare.io/memory", "80Gi"), 100U);
  EXPECT_EQ(by_memory("gpu-memory", "40960"), 500U) << "KAI counts it";
}

TEST(KubernetesWishes, TheAdministratorMayAllowMore) {
  ShareRules rules = kTen;
  rules.max_share = 5;
  rules.may_be_high = rules.is_hard = true;
  rules.memory_per_share = kGiB;
  const auto wanted =
      wanted_of(pod_with({{"gpushare.io/share", 2}},
                         {{"gpushare.io/share", "9"}, {"gpushare.io/priority", "high"}}),
                rules);
  ASSERT_TRUE(wanted);
  const TenantSettings settings = settings_of(*wanted);
  EXPECT_EQ(settings.weight, 500U);
  EXPECT_EQ(settings.priority, Priority::kHigh);
  EXPECT_EQ(settings.memory_max, 2 * kGiB);
  ASSERT_TRUE(settings.cap);
  EXPECT_DOUBLE_EQ(settings.cap->fraction(), 0.5);
}

TEST(KubernetesWishes, TheSmallerOfTwoCapsHolds) {
  struct Capped {
    const char* about;
    bool is_hard;
    uint64_t shares;
    const char* own;
    std::optional<double> fraction;  // nullopt: there is no cap
  };
  const Capped rows[] = {
      {"its own alone", false, 5, "30%", 0.3},
      {"none", false, 5, "max", std::nullopt},
      {"its own is lower", true, 5, "30%", 0.3},
      {"its own is lower, of another period", true, 5, "100000 1000000", 0.1},
      {"its shares are lower", true, 5, "70%", 0.5},
      {"its own is no cap", true, 5, "max", 0.5},
      {"all shares", true, 10, "30%", 0.3},
      {"what cannot be read is not said", true, 5, "0%", 0.5},
  };
  for (const Capped& row : rows) {
    ShareRules rules = kTen;
    rules.is_hard = row.is_hard;
    const auto wanted = wanted_of(
        pod_with({{"gpushare.io/share", row.shares}}, {{"gpushare.io/max", row.own}}), rules);
    ASSERT_TRUE(wanted) << row.about;
    const std::optional<Cap> cap = settings_of(*wanted).cap;
    ASSERT_EQ(cap.has_value(), row.fraction.has_value()) << row.about;
    if (cap) {
      EXPECT_DOUBLE_EQ(cap->fraction(), *row.fraction) << row.about;
    }
  }
}

// Whatever a pod says, its tenant's settings are such as the agent takes, and it never has more
// than was counted for it.
TEST(KubernetesWishes, NoWordGivesMoreThanWasCounted) {
  std::mt19937 random(3);
  const char* keys[] = {"gpushare.io/share",    "gpushare.io/memory", "nvidia.com/gpumem",
                        "nvidia.com/gpucores",  "gpu-fraction",       "gpu-memory",
                        "gpushare.io/priority", "gpushare.io/max"};
  const char* words[] = {
      "0",   "1",    "0.0001", "10",     "1e300", "inf",       "-3",
      "",    "max",  "50%",    "0.001%", "high",  "idle",      "18446744073709551615",
      "1Ti", "\xff", "1e-300", " 1",     "0x10",  "99999999Gi"};
  for (int round = 0; round < 5000; ++round) {
    ShareRules rules = kTen;
    rules.is_hard = random() % 2 == 0;
    rules.gpu_memory = random() % 2 == 0 ? 0 : 80 * kGiB;
    const uint64_t shares = 1 + random() % 10;
    Pod pod = pod_with({{"gpushare.io/share", shares}, {"gpushare.io/memory", 4}});
    for (int n = 0; n < 4; ++n)
      pod.annotations[keys[random() % 8]] = words[random() % std::size(words)];
    const auto wanted = wanted_of(pod, rules);
    ASSERT_TRUE(wanted);
    const TenantSettings settings = settings_of(*wanted);
    EXPECT_LE(settings.weight, 100 * shares);
    EXPECT_LE(settings.memory_max.value(), 4 * kGiB);
    EXPECT_NE(settings.priority, Priority::kHigh);
    if (rules.is_hard && shares < 10 && settings.cap) {
      EXPECT_LE(settings.cap->fraction(), 0.1 * static_cast<double>(shares) + 0.001);
    }
  }
}

TEST(KubernetesWishes, ATenantsNameIsAllowedAndOfThisPodAlone) {
  Pod pod = pod_with({});
  EXPECT_EQ(tenant_name(pod), "k8s-lab.train.0a1b2c3d");
  pod.name_space = std::string(63, 'n');
  pod.name = std::string(253, 'p');
  EXPECT_TRUE(check_tenant_name(tenant_name(pod)));
  pod.name = "\xff/..";
  EXPECT_TRUE(check_tenant_name(tenant_name(pod)));
}

TEST(KubernetesWishes, ATenantsNameIsAlsoAllowedBelowAnother) {
  Pod pod = pod_with({});
  EXPECT_EQ(tenant_above(pod, "teams/%n"), "teams/lab");
  EXPECT_EQ(tenant_above(pod, "%n/%n"), "lab/lab");
  EXPECT_EQ(tenant_above(pod, ""), "");
  EXPECT_EQ(tenant_name(pod, "teams/lab"), "teams/lab/k8s-lab.train.0a1b2c3d");
  pod.name_space = std::string(63, 'n');
  pod.name = std::string(253, 'p');
  for (size_t size = 1; size <= kLongestAbove; ++size) {
    const std::string name = tenant_name(pod, std::string(size, 'a'));
    EXPECT_TRUE(check_tenant_name(name)) << name;
    EXPECT_TRUE(name.ends_with(".0a1b2c3d")) << name;
  }
}

}  // namespace
}  // namespace gpushare
