// SPDX-License-Identifier: Apache-2.0
#include "tools/kubernetes/pod.h"

#include <gtest/gtest.h>

#include <random>

#include "tools/kubernetes/cgroup.h"

namespace gpushare {
namespace {

constexpr const char* kPod =
    R"({"metadata":{"uid":"11111111-2222-3333-4444-555555555555","name":"train",
 "namespace":"lab","resourceVersion":"17","annotations":{"gpushare.io/share":"3"}},
 "spec":{"containers":[{"name":"a","resources":{"limits":{"gpushare.io/share":"7","cpu":"500m"}}},
                       {"name":"b","resources":{"limits":{"gpushare.io/share":"1"}}}],
         "initContainers":[{"name":"i","resources":{"limits":{"gpushare.io/share":"2","x":9}}}]},
 "status":{"phase":"Running","qosClass":"Burstable","containerStatuses":[
   {"name":"a","containerID":"containerd://abc"},{"name":"b"}]}})";

std::string event(const std::string& type, const std::string& object) {
  return "{\"type\":\"" + type + "\",\"object\":" + object + "}";
}

TEST(KubernetesPod, IsReadFromAList) {
  const auto list =
      parse_pod_list(std::string(R"({"metadata":{"resourceVersion":"9"},"items":[)") + kPod + "]}");
  ASSERT_TRUE(list) << list.error().message();
  EXPECT_EQ(list->version, "9");
  ASSERT_EQ(list->pods.size(), 1U);
  const Pod& pod = list->pods[0];
  EXPECT_EQ(pod.full_name(), "lab/train");
  EXPECT_EQ(pod.uid, "11111111-2222-3333-4444-555555555555");
  EXPECT_EQ(pod.limit("gpushare.io/share"), 8U) << "of all containers";
  EXPECT_EQ(pod.limit("x"), 9U) << "of the init container";
  EXPECT_EQ(pod.limit("cpu"), std::nullopt) << "no whole number";
  EXPECT_EQ(*pod.annotation("gpushare.io/share"), "3");
  EXPECT_EQ(pod.containers.at("abc"), "a");
  EXPECT_FALSE(pod.has_ended);
}

// As Kubernetes counts what a pod needs, with sidecars from 1.29 on.
TEST(KubernetesPod, LimitsAreThoseOfAllThatRunAtOnce) {
  struct Counted {
    const char* about;
    std::vector<int> containers;
    std::vector<std::pair<int, bool>> init_containers;  // true: a sidecar
    std::optional<uint64_t> limit;
  };
  constexpr bool kSidecar = true, kOnce = false;
  const Counted rows[] = {
      {"containers are added", {7, 1}, {}, 8},
      {"an init container runs alone", {3}, {{2, kOnce}, {5, kOnce}}, 5},
      {"and may want less", {3}, {{2, kOnce}}, 3},
      {"a sidecar is added", {3}, {{2, kSidecar}}, 5},
      {"so are several", {3}, {{2, kSidecar}, {4, kSidecar}}, 9},
      {"one after a sidecar runs beside it", {1}, {{2, kSidecar}, {5, kOnce}}, 7},
      {"one before it does not", {1}, {{5, kOnce}, {2, kSidecar}}, 5},
      {"a sidecar alone", {}, {{2, kSidecar}}, 2},
      {"nothing", {}, {}, std::nullopt},
  };
  const auto container = [](int shares, bool is_sidecar) {
    return R"({"resources":{"limits":{"gpushare.io/share":")" + std::to_string(shares) + "\"}}" +
           (is_sidecar ? R"(,"restartPolicy":"Always"},)" : "},");
  };
  for (const Counted& row : rows) {
    std::string containers, init_containers;
    for (const int shares : row.containers) containers += container(shares, kOnce);
    for (const auto& [shares, is_sidecar] : row.init_containers)
      init_containers += container(shares, is_sidecar);
    for (std::string* list : {&containers, &init_containers})
      if (!list->empty()) list->pop_back();  // the last comma
    const auto read = parse_pod_event(event(
        "ADDED", R"({"metadata":{"uid":"u","name":"a","namespace":"b"},"spec":{"containers":[)" +
                     containers + R"(],"initContainers":[)" + init_containers + "]}}"));
    ASSERT_TRUE(read) << row.about;
    EXPECT_EQ(read->pod.limit("gpushare.io/share"), row.limit) << row.about;
  }
}

TEST(KubernetesPod, IsReadFromAWatch) {
  EXPECT_EQ(parse_pod_event(event("ADDED", kPod))->kind, PodEvent::Kind::kChanged);
  EXPECT_EQ(parse_pod_event(event("MODIFIED", kPod))->version, "17");
  EXPECT_EQ(parse_pod_event(event("DELETED", kPod))->kind, PodEvent::Kind::kDeleted);
  EXPECT_EQ(parse_pod_event(event("BOOKMARK", R"({"metadata":{"resourceVersion":"20"}})"))->version,
            "20");
  EXPECT_EQ(parse_pod_event(event("ERROR", R"({"code":410})"))->kind, PodEvent::Kind::kExpired);
  EXPECT_EQ(parse_pod_event(event("ERROR", R"({"code":500,"message":"no"})"))->message, "no");
}

// Whoever makes a pod may annotate it: only what no pod of the API server is called is believed.
TEST(KubernetesPod, OnlyAStaticPodIsCalledAsItsAnnotationSays) {
  const auto uid_with = [](const std::string& mirrored) {
    return parse_pod_event(
               event("ADDED", R"({"metadata":{"uid":"own-uid","name":"a","namespace":"b",
      "annotations":{"kubernetes.io/config.mirror":")" +
                                  mirrored + "\"}}}"))
        ->pod.uid;
  };
  EXPECT_EQ(uid_with("0123456789abcdef0123456789abcdef"), "0123456789abcdef0123456789abcdef");
  for (const char* another :
       {"", "11111111-2222-3333-4444-555555555555", "0123456789abcdef0123456789abcde",
        "0123456789ABCDEF0123456789ABCDEF", "0123456789abcdef0123456789abcdef0"})
    EXPECT_EQ(uid_with(another), "own-uid") << another;
}

TEST(KubernetesPod, NonsenseIsRefused) {
  for (const char* text :
       {"", "[]", "7", "{\"items\":[]}", "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":7}"})
    EXPECT_FALSE(parse_pod_list(text)) << text;
  for (const char* text :
       {"", "null", "{}", R"({"type":"ADDED"})", R"({"type":"ADDED","object":{"metadata":[]}})",
        R"({"type":"WHAT","object":{}})"})
    EXPECT_FALSE(parse_pod_event(text)) << text;
}

// Every byte may be another one: nothing but an error comes of it.
TEST(KubernetesPod, AnyBytesAreDefined) {
  std::mt19937 random(11);
  const std::string good = event("MODIFIED", kPod);
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (int n = 0; n < 3; ++n) bad[random() % bad.size()] = static_cast<char>(random());
    if (round % 5 == 0) bad.resize(random() % bad.size());
    const auto read = parse_pod_event(bad);
    if (!read) continue;
    for (const std::string& path : pod_cgroups(read->pod, CgroupDriver::kEither, "/"))
      EXPECT_EQ(path.find(".."), std::string::npos) << path;
  }
}

// A node keeps thousands that have ended, of which each list would be read again.
TEST(KubernetesPod, ThoseThatHaveEndedAreNotAskedFor) {
  EXPECT_EQ(pods_path("gpu1"),
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dgpu1"
            "%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed");
  // As one that leaves the selection is told.
  std::string ended = kPod;
  ended.replace(ended.find("Running"), 7, "Succeeded");
  const auto left = parse_pod_event(event("DELETED", ended));
  ASSERT_TRUE(left);
  EXPECT_EQ(left->kind, PodEvent::Kind::kDeleted);
  EXPECT_EQ(left->pod.full_name(), "lab/train");
}

TEST(KubernetesPod, QuantitiesAreWholeNumbers) {
  EXPECT_EQ(parse_quantity("7"), 7U);
  EXPECT_EQ(parse_quantity("12Gi"), 12ULL << 30);
  EXPECT_EQ(parse_quantity("2k"), 2000U);
  for (const char* text :
       {"", "-1", "1.5", "500m", "Gi", "7 ", "99999999999999999999", "99999999999999Ti", "1e3"})
    EXPECT_EQ(parse_quantity(text), std::nullopt) << text;
}

Pod pod(const std::string& qos, const std::string& uid = "1f-2e") {
  Pod pod;
  pod.uid = uid;
  pod.qos = qos;
  return pod;
}

TEST(KubernetesCgroup, IsWhereTheKubeletPutsThePod) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(pod_cgroups(pod("Guaranteed"), CgroupDriver::kCgroupfs, "/"),
            Paths{"/kubepods/pod1f-2e"});
  EXPECT_EQ(pod_cgroups(pod("BestEffort"), CgroupDriver::kCgroupfs, "/kubelet"),
            Paths{"/kubelet/kubepods/besteffort/pod1f-2e"});
  EXPECT_EQ(pod_cgroups(pod("Burstable"), CgroupDriver::kSystemd, "/"),
            Paths{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f_2e.slice"});
  EXPECT_EQ(pod_cgroups(pod("Guaranteed"), CgroupDriver::kSystemd, "/kubelet"),
            Paths{"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1f_2e.slice"});
  EXPECT_EQ(pod_cgroups(pod("Guaranteed"), CgroupDriver::kEither, "").size(), 2U);
}

TEST(KubernetesCgroup, AUidLeadsNowhereElse) {
  for (const char* uid : {"", "../../x", "a/b", "a.slice", "a\nb", "*"})
    EXPECT_TRUE(pod_cgroups(pod("Burstable", uid), CgroupDriver::kEither, "/").empty()) << uid;
}

}  // namespace
}  // namespace gpushare
