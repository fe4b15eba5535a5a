// SPDX-License-Identifier: Apache-2.0
// The shapes of the files are those that Docker 20.10, podman 4.3, containerd 1.6 and CRI-O write,
// with what no rule asks for left out.
#include "sched/tenants/containers/container_records.h"

#include <gtest/gtest.h>

namespace gpushare {
namespace {

using Labels = std::map<std::string, std::string, std::less<>>;

TEST(ContainerRecords, DockerNamesAndLabelsAContainer) {
  const Container web = docker_container(R"({"StreamConfig":{},"State":{"Running":true,"Pid":4711},
      "ID":"aa","Config":{"Hostname":"aa","Env":["A=1"],"Cmd":["sleep"],
      "Labels":{"com.docker.compose.service":"web","team":"vision"}},
      "Name":"/web","Driver":"overlay2","RestartCount":0})");
  EXPECT_EQ(web.names, std::vector<std::string>{"web"});
  EXPECT_EQ(web.labels, (Labels{{"com.docker.compose.service", "web"}, {"team", "vision"}}));
  EXPECT_EQ(docker_container(R"({"Name":"/a","Config":{"Labels":null}})"),
            (Container{.names = {"a"}, .labels = {}}));
}

TEST(ContainerRecords, ABundleHasAnnotationsAndTheNamesAmongThem) {
  EXPECT_EQ(oci_container(R"({"ociVersion":"1.0.2-dev","process":{"args":["sleep"]},
      "annotations":{"io.kubernetes.cri.container-name":"trainer",
      "io.kubernetes.cri.sandbox-name":"train-0","io.kubernetes.cri.sandbox-namespace":"lab"}})"),
            (Container{.names = {"trainer"},
                       .labels = {{"io.kubernetes.cri.container-name", "trainer"},
                                  {"io.kubernetes.cri.sandbox-name", "train-0"},
                                  {"io.kubernetes.cri.sandbox-namespace", "lab"}}}))
      << "containerd under Kubernetes";
  EXPECT_EQ(oci_container(R"({"annotations":{"nerdctl/name":"web","nerdctl/namespace":"default"}})")
                .names,
            std::vector<std::string>{"web"});
  EXPECT_EQ(oci_container(R"({"annotations":{"io.kubernetes.container.name":"main",
      "io.kubernetes.pod.name":"train-0"}})")
                .names,
            std::vector<std::string>{"main"})
      << "CRI-O";
  EXPECT_EQ(
      oci_container(R"({"annotations":{"io.container.manager":"libpod","team":"vision"}})"),
      (Container{.names = {}, .labels = {{"io.container.manager", "libpod"}, {"team", "vision"}}}))
      << "podman writes no name there";
}

TEST(ContainerRecords, PodmansStorageHasTheNamesOfAll) {
  const char* text = R"([{"id":"aa","names":["web"],"image":"c4","metadata":"{\"name\":\"web\"}",
      "flags":{"MountLabel":""}},{"id":"bb","names":["db","db2"]},{"id":"cc"}])";
  EXPECT_EQ(stored_names(text, "aa"), std::vector<std::string>{"web"});
  EXPECT_EQ(stored_names(text, "bb"), (std::vector<std::string>{"db", "db2"}));
  EXPECT_TRUE(stored_names(text, "cc").empty());
  EXPECT_TRUE(stored_names(text, "dd").empty());
}

TEST(ContainerRecords, OfWhatIsNotOfTheFormNothingIsKnown) {
  for (const char* text :
       {"", "{", "[]", "null", "7", R"("x")", R"({"Name":7,"Config":[],"annotations":[1]})",
        R"({"Name":["/a"],"Config":{"Labels":{"a":1,"b":null,"c":{}}},"annotations":{"a":[]}})",
        R"([{"id":"aa","names":[7]},{"id":7,"names":["x"]},5,{"id":"aa","names":"web"}])"}) {
    EXPECT_EQ(docker_container(text), Container()) << text;
    EXPECT_EQ(oci_container(text), Container()) << text;
    EXPECT_TRUE(stored_names(text, "aa").empty()) << text;
  }
}

TEST(ContainerRecords, LabelsThatAreTooManyOrTooLongAreLeftOut) {
  const std::string most(kLongestLabel, 'x');
  const Container one = oci_container(R"({"annotations":{"a":")" + most + R"(","b":")" + most +
                                      R"(x",")" + most + R"(":"c",")" + most + R"(x":"d"}})");
  EXPECT_EQ(one.labels, (Labels{{"a", most}, {most, "c"}}));
  std::string many;
  for (std::size_t i = 0; i <= kMostLabels; ++i)
    many += (many.empty() ? "\"" : ",\"") + std::to_string(i) + "\":\"v\"";
  EXPECT_EQ(oci_container(R"({"annotations":{)" + many + "}}").labels.size(), kMostLabels);
}

}  // namespace
}  // namespace gpushare
