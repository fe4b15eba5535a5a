// SPDX-License-Identifier: Apache-2.0
// What users and the administrator may say, and what a job gets of that.
#include "tools/slurm/wish.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tools/slurm/settle.h"

namespace gpushare {
namespace {

// What the plugin says to a line of plugstack.conf; empty: nothing is wrong.
struct Admin {
  explicit Admin(std::vector<std::string> words) {
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    if (gs_parse_admin(&admin, static_cast<int>(pointers.size()), pointers.data(), why) == 0)
      why[0] = '\0';
  }
  gs_admin admin{};
  char why[GS_WHY_SIZE] = "";
};

std::string refusal(gs_option option, const char* text) {
  gs_wish wish{};
  char why[GS_WHY_SIZE] = "";
  const int result = gs_parse_option(&wish, option, text, why);
  EXPECT_EQ(result == 0, wish.is_said[option]) << text;
  return result == 0 ? "" : why;
}

// The settings that the agent is asked for, or the reason that there are none.
std::string settled(const Admin& admin, gs_given given,
                    std::vector<std::pair<gs_option, const char*>> said = {}) {
  gs_wish wish{}, result{};
  char text[192], why[GS_WHY_SIZE];
  for (const auto& [option, value] : said)
    EXPECT_EQ(gs_parse_option(&wish, option, value, why), 0) << why;
  if (gs_settle(&wish, &admin.admin, given, &result, why) != 0) return why;
  EXPECT_GT(gs_settings_json(&result, text, sizeof(text)), 0);
  return text;
}

TEST(SlurmWish, TakesWhatTheAgentWouldTake) {
  for (const char* text : {"1", "300", "10000"}) EXPECT_EQ(refusal(GS_WEIGHT, text), "");
  for (const char* text :
       {"", "0", "10001", "-1", "+1", " 1", "1 ", "1.5", "0x10", "99999999999999999999999"})
    EXPECT_NE(refusal(GS_WEIGHT, text), "") << text;
  for (const char* text : {"max", "1%", "33.3%", "0.999%", "99.999%", "100%"})
    EXPECT_EQ(refusal(GS_CAP, text) == "", std::string(text) != "0.999%") << text;
  for (const char* text : {"", "30", "%", "0%", "101%", "1.2345%", "1..2%", ".5%", "-3%", "30%%"})
    EXPECT_NE(refusal(GS_CAP, text), "") << text;
  for (const char* text : {"1", "500M", "12G", "12GiB", "1.5G", "0.001K", "4096T"})
    EXPECT_EQ(refusal(GS_MEMORY, text), "") << text;
  for (const char* text :
       {"", "0", "max", "1.5", "12X", "12GG", "G", "-1", "99999999999999999T", "4503599627370495T"})
    EXPECT_NE(refusal(GS_MEMORY, text), "") << text;
  for (const char* text : {"idle", "normal", "high"}) EXPECT_EQ(refusal(GS_PRIORITY, text), "");
  EXPECT_NE(refusal(GS_PRIORITY, "High"), "");
  EXPECT_EQ(refusal(GS_WEIGHT, nullptr), refusal(GS_WEIGHT, ""));
}

TEST(SlurmWish, NamesWhatIsWrongAndWhatIsAllowed) {
  EXPECT_EQ(refusal(GS_WEIGHT, "0"), "--gpu-weight: '0' is not allowed; allowed: 1 to 10000");
  // What a user types is cut, so that it fits into any log.
  EXPECT_LT(refusal(GS_WEIGHT, std::string(5000, 'x').c_str()).size(), 100U);
  EXPECT_NE(std::string(Admin({}).why).find("shards= is missing"), std::string::npos);
  EXPECT_NE(std::string(Admin({"shards=8", "weight=3"}).why).find("known: socket="),
            std::string::npos);
  for (const char* word : {"shards=0", "shards=x", "socket=agent.sock", "max_cap=1", "=", "",
                           "priority=first", "max_mem=0", "mem_per_shard=-1", "required"})
    EXPECT_NE(std::string(Admin({"shards=8", word}).why), "") << word;
  EXPECT_NE(std::string(Admin({"shards=8", "socket=/" + std::string(200, 'a')}).why), "");
}

TEST(SlurmWish, CommentsAreOffUnlessTheAdministratorWantsThem) {
  EXPECT_EQ(Admin({"shards=8"}).admin.comment, GS_COMMENT_NONE);
  EXPECT_EQ(Admin({"shards=8", "comment=none"}).admin.comment, GS_COMMENT_NONE);
  EXPECT_EQ(Admin({"shards=8", "comment=admin"}).admin.comment, GS_COMMENT_ADMIN);
  EXPECT_EQ(Admin({"shards=8", "comment=accounting"}).admin.comment, GS_COMMENT_ACCOUNTING);
  EXPECT_STREQ(Admin({"shards=8", "comment=yes"}).why,
               "comment: 'yes' is not allowed; allowed: none, admin, accounting");
  // All names fit into a refusal, whatever was written.
  const std::string unknown = Admin({"shards=8", std::string(60, 'x')}).why;
  EXPECT_TRUE(unknown.ends_with("comment=")) << unknown;
}

TEST(SlurmWish, WeightIsThatOfTheShards) {
  const Admin admin({"shards=8"});
  ASSERT_STREQ(admin.why, "");
  EXPECT_EQ(settled(admin, {2, 1}), R"("weight":"20","priority":"normal")");
  EXPECT_EQ(settled(admin, {6, 1}), R"("weight":"60","priority":"normal")");
  // On two GPUs, each has half of them.
  EXPECT_EQ(settled(admin, {12, 2}), R"("weight":"60","priority":"normal")");
  // A whole GPU is all of its shards, and nothing is one.
  EXPECT_EQ(settled(admin, {0, 1}), R"("weight":"80","priority":"normal")");
  EXPECT_EQ(settled(admin, {0, 0}), R"("weight":"10","priority":"normal")");
  EXPECT_NE(settled(admin, {9, 1}).find("9 shards on 1 GPU(s)"), std::string::npos);
  EXPECT_NE(settled(admin, {2, 0}).find("weight"), std::string::npos);
  EXPECT_NE(settled(Admin({"shards=2000"}), {1500, 1}).find("too high"), std::string::npos);
}

TEST(SlurmWish, MemoryIsInProportionWhereItIsSaid) {
  const Admin admin({"shards=8", "mem_per_shard=10G", "max_cap=50%"});
  EXPECT_EQ(settled(admin, {2, 1}),
            R"("weight":"20","priority":"normal","max":"50%","memory_max":"21474836480")");
  EXPECT_EQ(settled(admin, {2, 1}, {{GS_MEMORY, "1G"}, {GS_CAP, "12.5%"}}),
            R"("weight":"20","priority":"normal","max":"12.500%","memory_max":"1073741824")");
  EXPECT_NE(settled(admin, {2, 1}, {{GS_MEMORY, "21G"}}).find("--gpu-mem="), std::string::npos);
  EXPECT_NE(settled(admin, {2, 1}, {{GS_CAP, "max"}}).find("--gpu-cap=100%"), std::string::npos);
}

TEST(SlurmWish, NobodyGetsMoreThanTheAdministratorAllows) {
  const Admin admin({"shards=8"});
  EXPECT_EQ(settled(admin, {2, 1}, {{GS_WEIGHT, "20"}}), R"("weight":"20","priority":"normal")");
  EXPECT_EQ(settled(admin, {2, 1}, {{GS_WEIGHT, "5"}, {GS_PRIORITY, "idle"}}),
            R"("weight":"5","priority":"idle")");
  EXPECT_EQ(settled(admin, {2, 1}, {{GS_WEIGHT, "21"}}),
            "--gpu-weight=21 is more than this job may have: at most 20");
  EXPECT_EQ(settled(admin, {2, 1}, {{GS_PRIORITY, "high"}}),
            "--gpu-priority=high is more than this job may have: at most normal");
  const Admin generous({"shards=8", "max_weight=500", "max_priority=high", "priority=idle"});
  EXPECT_EQ(settled(generous, {2, 1}, {{GS_WEIGHT, "500"}, {GS_PRIORITY, "high"}}),
            R"("weight":"500","priority":"high")");
  EXPECT_EQ(settled(generous, {2, 1}), R"("weight":"20","priority":"idle")");
  EXPECT_NE(settled(generous, {2, 1}, {{GS_WEIGHT, "501"}}), R"("weight":"500")");
  // The highest that may be asked for also bounds what comes from shards.
  EXPECT_EQ(settled(Admin({"shards=8", "max_weight=30"}), {6, 1}),
            R"("weight":"30","priority":"normal")");
}

TEST(SlurmWish, SettingsThatDoNotFitAreNotCut) {
  gs_wish wish{.is_said = {true, true, true, true},
               .weight = 10000,
               .cap = 99999,
               .memory = 1ULL << 61,
               .priority = GS_NORMAL};
  char text[192];
  const int length = gs_settings_json(&wish, text, sizeof(text));
  ASSERT_GT(length, 0);
  EXPECT_EQ(gs_settings_json(&wish, text, static_cast<size_t>(length)), -1);
  EXPECT_EQ(gs_settings_json(&wish, text, static_cast<size_t>(length) + 1), length);
}

TEST(SlurmTenant, IsBelowWhatTheAdministratorSays) {
  const auto name_of = [](const char* below, const char* user, const char* account = "") {
    gs_admin admin{};
    std::strncpy(admin.below, below, sizeof admin.below - 1);
    char name[GS_TENANT_SIZE];
    const int result = gs_tenant_name(&admin, user, account, 4711, name);
    EXPECT_EQ(result == 0, std::strchr(name, '/') != nullptr);
    EXPECT_EQ(gs_job_of_tenant(name), 4711u);
    return std::string(name);
  };
  EXPECT_EQ(name_of("", "anna"), "slurm-4711");
  EXPECT_EQ(name_of("team", "anna"), "team/slurm-4711");
  EXPECT_EQ(name_of("%u", "anna"), "anna/slurm-4711");
  EXPECT_EQ(name_of("team/u-%u", "anna"), "team/u-anna/slurm-4711");
  EXPECT_EQ(name_of("%u", ""), "slurm-4711");
  EXPECT_EQ(name_of("%a", "anna", "physics"), "physics/slurm-4711");
  EXPECT_EQ(name_of("%a/%u", "anna", "physics"), "physics/anna/slurm-4711");
  EXPECT_EQ(name_of("%a", "anna", ""), "slurm-4711");
  EXPECT_EQ(name_of("%x", "anna", "physics"), "%x/slurm-4711");
  const std::string longest(63, 'x');
  EXPECT_EQ(name_of(longest.c_str(), "anna"), "slurm-4711");
  EXPECT_EQ(name_of("%u%u%u", longest.c_str()), "slurm-4711");
  EXPECT_EQ(name_of("%u", longest.substr(11).c_str()), longest.substr(11) + "/slurm-4711");
  EXPECT_EQ(gs_job_of_tenant("team"), 0u);
}

TEST(SlurmTenant, WrongNamesInPlugstackAreRefused) {
  for (const std::string& word : {std::string("below="), "below=" + std::string(64, 'x')}) {
    gs_admin admin{};
    char why[GS_WHY_SIZE] = "";
    std::string copy = word;
    char* words[] = {copy.data()};
    EXPECT_NE(gs_parse_admin(&admin, 1, words, why), 0);
    EXPECT_NE(std::string(why).find("below: "), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace gpushare
