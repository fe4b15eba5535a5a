// SPDX-License-Identifier: Apache-2.0
#include "tools/kubernetes/pod_tenants.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

Pod pod(const std::string& name, const std::string& uid, uint64_t shares) {
  Pod pod;
  pod.uid = pod.object_uid = uid;
  pod.name_space = "lab";
  pod.name = name;
  pod.qos = "Guaranteed";
  if (shares > 0) pod.limits["gpushare.io/share"] = shares;
  return pod;
}

class PodTenantsTest : public ::testing::Test {
 protected:
  // What the agent is told, which does all of it.
  std::vector<std::string> tell() {
    std::vector<std::string> told;
    for (const PodTenants::Step& step : tenants_.steps(now_)) {
      told.push_back(step.request.op + " " + step.tenant + step.request.cgroup);
      tenants_.told(step);
    }
    return told;
  }
  using Told = std::vector<std::string>;

  Time now_{};
  PodTenants tenants_{{}, CgroupDriver::kCgroupfs, "/"};
};

TEST_F(PodTenantsTest, TheAgentIsToldOnceOfEachPod) {
  tenants_.replace({pod("a", "1", 5), pod("b", "2", 0)});
  EXPECT_FALSE(tenants_.is_settled("lab", "a"));
  EXPECT_TRUE(tenants_.is_settled("lab", "b")) << "it asks for nothing";
  EXPECT_FALSE(tenants_.is_settled("lab", "c")) << "it is not known";
  EXPECT_EQ(tell(), (Told{"set k8s-lab.a.1", "attach k8s-lab.a.1/kubepods/pod1"}));
  EXPECT_TRUE(tenants_.is_settled("lab", "a"));
  EXPECT_EQ(tell(), Told{});
  tenants_.change(pod("a", "1", 5));
  EXPECT_EQ(tell(), Told{}) << "nothing of it has changed";
  Pod lower = pod("a", "1", 5);
  lower.annotations["gpushare.io/share"] = "2";
  tenants_.change(lower);
  EXPECT_FALSE(tenants_.is_settled("lab", "a"));
  EXPECT_EQ(tell(), Told{"set k8s-lab.a.1"});
  tenants_.remove(lower);
  EXPECT_EQ(tell(), Told{"remove k8s-lab.a.1"});
}

TEST_F(PodTenantsTest, APodOfTheSameNameIsAnotherTenant) {
  tenants_.replace({pod("a", "1", 5)});
  tell();
  tenants_.replace({pod("a", "2", 5)});
  EXPECT_EQ(tell(),
            (Told{"remove k8s-lab.a.1", "set k8s-lab.a.2", "attach k8s-lab.a.2/kubepods/pod2"}));
}

// As of a StatefulSet: while the API server cannot be heard the one that is known may be gone, and
// its name another's.
TEST_F(PodTenantsTest, NothingIsSurelySettledOutOfSight) {
  tenants_.replace({pod("a", "1", 5)});
  tell();
  EXPECT_TRUE(tenants_.is_surely_settled("lab", "a"));
  tenants_.lose_sight();
  EXPECT_FALSE(tenants_.is_surely_settled("lab", "a"));
  tenants_.replace({pod("a", "2", 5)});
  EXPECT_FALSE(tenants_.is_surely_settled("lab", "a")) << "it is another one";
  tell();
  EXPECT_TRUE(tenants_.is_surely_settled("lab", "a"));
}

// One of two containers on another GPU than the other.
TEST_F(PodTenantsTest, APodWeighsWhatItHasOfOneGpu) {
  const auto weight = [&] { return tenants_.tenants().at("1").wanted.settings.front().second; };
  const auto has = [](const std::string& container, std::vector<std::string> ids) {
    return ContainerDevices{"lab", "a", container, "gpushare.io/share", std::move(ids)};
  };
  Pod both = pod("a", "1", 5);
  tenants_.replace({both});
  EXPECT_EQ(weight(), "50") << "it is not known where they are";
  tenants_.see_devices({has("x", {"GPU-1.0", "GPU-1.1", "GPU-1.2"})});
  EXPECT_EQ(weight(), "50") << "the other container has none yet";
  EXPECT_TRUE(tenants_.has_unplaced());
  tenants_.see_devices({has("x", {"GPU-1.0", "GPU-1.1", "GPU-1.2"}),
                        has("y", {"GPU-2.0", "GPU-2.1"}),
                        {"lab", "b", "x", "gpushare.io/share", {"GPU-2.4"}},
                        {"lab", "a", "x", "gpushare.io/memory", {"GPU-1.0", "GPU-1.1"}}});
  EXPECT_EQ(weight(), "30");
  EXPECT_FALSE(tenants_.has_unplaced());
  EXPECT_TRUE(tenants_.take_complaints().empty());
  tenants_.change(both);
  EXPECT_EQ(weight(), "30") << "what the API server says later does not change that";

  tenants_.remove(both);
  both.containers = {{"id", "x"}};
  tenants_.change(both);
  EXPECT_TRUE(tenants_.has_unplaced()) << "another may have its name";
  for (int i = 0; i < 2; ++i)
    tenants_.see_devices({has("x", {"GPU-1.0", "GPU-1.1"}), has("y", {"GPU-2.0"})});
  EXPECT_EQ(weight(), "50");
  EXPECT_EQ(tenants_.take_complaints().size(), 1U) << "it does not sum up";
}

class BelowTest : public PodTenantsTest {
 protected:
  BelowTest() {
    ShareRules rules;
    rules.below = "%n";
    tenants_ = PodTenants(rules, CgroupDriver::kCgroupfs, "/");
  }
};

// Programs that run there do not move: a pod stays where it began.
TEST_F(BelowTest, APodIsBelowTheTenantOfItsNamespaceWhereThereIsOneWhenItComes) {
  tenants_.forget_told({"default"});
  tenants_.replace({pod("a", "1", 5)});
  EXPECT_EQ(tell(), (Told{"set k8s-lab.a.1", "attach k8s-lab.a.1/kubepods/pod1"}));
  tenants_.set_present({"default", "lab", "k8s-lab.a.1"});
  tenants_.replace({pod("a", "1", 5), pod("b", "2", 5)});
  EXPECT_EQ(tell(), (Told{"set lab/k8s-lab.b.2", "attach lab/k8s-lab.b.2/kubepods/pod2"}));
  EXPECT_TRUE(tenants_.is_settled("lab", "b"));
  // Another agent, or another plugin, finds what is there.
  const std::vector<std::string> there{"default",         "lab",      "k8s-lab.a.1",
                                       "lab/k8s-lab.b.2", "lab/mine", "lab/k8s-lab.old.9"};
  tenants_.forget_told(there);
  EXPECT_EQ(tell(),
            (Told{"remove lab/k8s-lab.old.9", "set k8s-lab.a.1", "attach k8s-lab.a.1/kubepods/pod1",
                  "set lab/k8s-lab.b.2", "attach lab/k8s-lab.b.2/kubepods/pod2"}));
}

TEST_F(BelowTest, WhereAllIsForgottenAPodIsWhereItMayBeNow) {
  tenants_.forget_told({"default", "lab"});
  tenants_.replace({pod("a", "1", 5)});
  tell();
  tenants_.forget_told({"default"});
  EXPECT_EQ(tell(), (Told{"set k8s-lab.a.1", "attach k8s-lab.a.1/kubepods/pod1"}));
}

TEST_F(BelowTest, ATenantAboveWithTooLongANameIsComplainedOf) {
  Pod one = pod("a", "1", 5);
  one.name_space = std::string(40, 'n');
  tenants_.change(one);
  EXPECT_TRUE(tenants_.take_complaints().empty());
  one.name_space += 'n';
  tenants_.change(one);
  tenants_.change(one);
  const std::vector<std::string> complaints = tenants_.take_complaints();
  ASSERT_EQ(complaints.size(), 1U);
  EXPECT_EQ(complaints[0], one.full_name() + ": its tenant is at the top: the one above it, '" +
                               one.name_space + "', would have 41 characters, and may have 40");
}

TEST_F(BelowTest, TheTenantOfANamespaceIsNeverTakenForAPods) {
  ShareRules rules;
  rules.below = "k8s-%n";
  tenants_ = PodTenants(rules, CgroupDriver::kCgroupfs, "/");
  tenants_.forget_told({"k8s-lab", "teams/k8s-lab"});
  EXPECT_EQ(tell(), Told{});
  tenants_.replace({pod("a", "1", 5)});
  EXPECT_EQ(tell().front(), "set k8s-lab/k8s-lab.a.1");
}

TEST_F(PodTenantsTest, WhatIsMadeBelowAPodsTenantIsNotOurs) {
  tenants_.forget_told({"k8s-lab.a.1", "k8s-lab.a.1/k8s-mine", "lab/k8s-lab.b.2"});
  EXPECT_EQ(tell(), (Told{"remove k8s-lab.a.1", "remove lab/k8s-lab.b.2"}))
      << "those of a time with --below are";
}

TEST_F(PodTenantsTest, APodThatHasEndedHasNoTenant) {
  Pod ended = pod("a", "1", 5);
  tenants_.change(ended);
  tell();
  ended.has_ended = true;
  tenants_.change(ended);
  EXPECT_EQ(tell(), Told{"remove k8s-lab.a.1"});
}

TEST_F(PodTenantsTest, TwoThatSayTheyAreTheSameStaticPodAreNotBelieved) {
  Pod first = pod("a", "1", 5), second = pod("b", "2", 5);
  first.uid = second.uid = "static";
  tenants_.replace({first, second});
  EXPECT_EQ(tell(), (Told{"set k8s-lab.a.1", "attach k8s-lab.a.1/kubepods/pod1", "set k8s-lab.b.2",
                          "attach k8s-lab.b.2/kubepods/pod2"}));
  EXPECT_EQ(tenants_.take_complaints().size(), 1U);
  EXPECT_FALSE(tenants_.names().contains("static"));
  EXPECT_TRUE(tenants_.is_settled("lab", "a"));
  tenants_.remove(second);
  EXPECT_FALSE(tenants_.is_settled("lab", "a"));
  EXPECT_EQ(tell(), (Told{"remove k8s-lab.b.2", "attach k8s-lab.a.1/kubepods/podstatic"}));
  EXPECT_TRUE(tenants_.names().contains("static"));
  tenants_.change(second);
  EXPECT_EQ(tell(), (Told{"set k8s-lab.b.2", "attach k8s-lab.b.2/kubepods/pod2"}))
      << "who comes later takes nothing";
}

// The agent lets the cgroups of a removed tenant go, whoever else was told to have them.
TEST_F(PodTenantsTest, WhatGoesWithAnotherTenantIsAttachedAgain) {
  Pod first = pod("a", "1", 5), second = pod("b", "2", 5);
  first.uid = second.uid = "static";
  tenants_.replace({first});
  tell();
  tenants_.replace({second});
  const auto steps = tenants_.steps(now_);
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[0].request.op, "remove");
  tenants_.refused(steps[0], "there are tenants below", now_);
  EXPECT_EQ(tell(), (Told{"set k8s-lab.b.2", "attach k8s-lab.b.2/kubepods/podstatic"}));
  now_ += PodTenants::kFirstRetry;
  EXPECT_EQ(tell(), Told{"remove k8s-lab.a.1"});
  EXPECT_EQ(tell(), Told{"attach k8s-lab.b.2/kubepods/podstatic"});
}

// What the agent refuses, because it is full or takes a file anew, it may do later.
TEST_F(PodTenantsTest, WhatIsRefusedIsTriedAgain) {
  const auto refuse = [&](const std::string& why) {
    bool is_new = false;
    for (const PodTenants::Step& step : tenants_.steps(now_))
      is_new = tenants_.refused(step, why, now_);
    return is_new;
  };
  tenants_.replace({pod("a", "1", 5)});
  EXPECT_TRUE(refuse("no room"));
  EXPECT_FALSE(tenants_.is_settled("lab", "a")) << "no container is to start";
  EXPECT_EQ(tell(), Told{}) << "not at once";
  now_ += PodTenants::kFirstRetry;
  EXPECT_FALSE(refuse("no room")) << "it is said once";
  now_ += PodTenants::kFirstRetry;
  EXPECT_EQ(tell(), Told{}) << "ever more rarely";
  Pod lower = pod("a", "1", 5);
  lower.annotations["gpushare.io/share"] = "2";
  tenants_.change(lower);
  EXPECT_EQ(tell(), Told{"set k8s-lab.a.1"}) << "this is another request";
  for (int i = 0; i < 20; ++i) {
    now_ += PodTenants::kLastRetry;
    refuse("no room");
  }
  now_ += PodTenants::kLastRetry;
  EXPECT_EQ(tell(), Told{"attach k8s-lab.a.1/kubepods/pod1"});
  EXPECT_TRUE(tenants_.is_settled("lab", "a"));
}

// Another agent, or another plugin: what is there of pods goes when they are gone, and nothing
// else.
TEST_F(PodTenantsTest, WhatAnotherLeftIsSetRight) {
  tenants_.replace({pod("a", "1", 5)});
  tell();
  tenants_.forget_told({"default", "lab", "k8s-lab.a.1", "k8s-lab.gone.7"});
  EXPECT_EQ(tell(),
            (Told{"remove k8s-lab.gone.7", "set k8s-lab.a.1", "attach k8s-lab.a.1/kubepods/pod1"}));
}

// All that run on the node, as the exporter wants them: also those that ask for nothing.
TEST_F(PodTenantsTest, PodsAreNamedWhileTheyAreThere) {
  Pod asks = pod("a", "1", 5);
  asks.containers = {{"id", "main"}};
  Pod mirrored = pod("b", "2", 0);
  mirrored.uid = "as-the-kubelet-knows-it";
  tenants_.replace({asks, mirrored});
  EXPECT_EQ(tenants_.names(), (PodNames{{"1", {"lab", "a", {{"id", "main"}}}},
                                        {"as-the-kubelet-knows-it", {"lab", "b", {}}}}));
  tenants_.remove(asks);
  EXPECT_EQ(tenants_.names().size(), 1u);
}

TEST_F(PodTenantsTest, AComplaintIsMadeOnce) {
  Pod wrong = pod("a", "1", 5);
  wrong.annotations["gpushare.io/share"] = "much";
  tenants_.change(wrong);
  tenants_.change(wrong);
  EXPECT_EQ(tenants_.take_complaints().size(), 1U);
  tenants_.change(wrong);
  EXPECT_TRUE(tenants_.take_complaints().empty());
}

}  // namespace
}  // namespace gpushare
