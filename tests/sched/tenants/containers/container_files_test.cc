// SPDX-License-Identifier: Apache-2.0
// The files of engines where they lie, and who is not believed.
#include "sched/tenants/containers/container_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sched/tenants/proc_reader.h"
#include "shmctl/program/temp_folder.h"

namespace gpushare {
namespace {

const std::string kId(64, 'a');
const std::string kDocker = "/var/lib/docker/containers/" + kId;
const std::string kPodman = "/var/lib/containers/storage/overlay-containers";
const std::string kTasks = "/run/containerd/io.containerd.runtime.v2.task";

// A machine whose root is this user.
class ContainerFilesTest : public testing::Test {
 protected:
  ContainerFilesTest() { make("/cgroup/docker"); }

  void make(const std::string& folder) const {
    std::filesystem::create_directories(places_.root + folder);
    ::chmod((places_.root + folder).c_str(), 0711);
  }
  void write(const std::string& folder, const std::string& name, const std::string& text) const {
    make(folder);
    std::ofstream(places_.root + folder + "/" + name) << text;
    ::chmod((places_.root + folder + "/" + name).c_str(), 0600);
  }
  // nullptr: nothing is known of it, or nothing can be said now.
  ContainerPtr read(const std::string& cgroup = "/docker/" + kId) const {
    return read_container(places_, container_group(cgroup).value()).value_or(nullptr);
  }
  std::vector<std::string> names(const std::string& cgroup = "/docker/" + kId) const {
    const ContainerPtr container = read(cgroup);
    return container == nullptr ? std::vector<std::string>() : container->names;
  }

  const TempFolder folder_ = TempFolder::make("gpushare-test").value();
  ContainerPlaces places_{.root = folder_.path(),
                          .cgroups = std::string(folder_.path()) + "/cgroup",
                          .owner = ::geteuid()};
};

using Names = std::vector<std::string>;

TEST_F(ContainerFilesTest, EachEngineIsAsked) {
  EXPECT_EQ(read(), nullptr) << "no engine has it";
  write(kDocker, "config.v2.json", R"({"Name":"/web","Config":{"Labels":{"team":"vision"}}})");
  ASSERT_NE(read(), nullptr);
  EXPECT_EQ(*read(), (Container{.names = {"web"}, .labels = {{"team", "vision"}}}));
  EXPECT_EQ(names("/docker/" + std::string(64, 'b')), Names()) << "another one";

  std::filesystem::remove_all(places_.root + kDocker);
  write(kTasks + "/k8s.io/" + kId, "config.json",
        R"({"annotations":{"io.kubernetes.cri.container-name":"trainer"}})");
  EXPECT_EQ(names(), Names{"trainer"});

  std::filesystem::remove_all(places_.root + kTasks);
  write(kPodman + "/" + kId + "/userdata", "config.json", R"({"annotations":{"team":"vision"}})");
  write(kPodman, "containers.json", R"([{"id":")" + kId + R"(","names":["web"]}])");
  ASSERT_NE(read(), nullptr);
  EXPECT_EQ(*read(), (Container{.names = {"web"}, .labels = {{"team", "vision"}}}));
  std::filesystem::remove(places_.root + kPodman + "/containers.json");
  write(kPodman, "volatile-containers.json", R"([{"id":")" + kId + R"(","names":["once"]}])");
  EXPECT_EQ(names(), Names{"once"}) << "one that goes with its program";
  std::filesystem::remove(places_.root + kPodman + "/volatile-containers.json");
  EXPECT_EQ(names(), Names()) << "its labels are known all the same";
  ASSERT_NE(read(), nullptr);
}

TEST_F(ContainerFilesTest, OnlyTheOwnersFilesAreBelieved) {
  const std::string file = places_.root + kDocker + "/config.v2.json";
  write(kDocker, "config.v2.json", R"({"Name":"/web"})");
  ASSERT_EQ(names(), Names{"web"});
  places_.owner = ::geteuid() + 1;
  EXPECT_EQ(names(), Names()) << "all is another's";
  places_.owner = ::geteuid();

  ::chmod(file.c_str(), 0620);
  EXPECT_EQ(names(), Names()) << "a group may write it";
  ::chmod(file.c_str(), 0600);
  ::chmod((places_.root + kDocker).c_str(), 0777);
  EXPECT_EQ(names(), Names()) << "others may put another in its place";
  ::chmod((places_.root + kDocker).c_str(), 0711);
  ASSERT_EQ(names(), Names{"web"});

  write("/elsewhere", "config", R"({"Name":"/root-database"})");
  std::filesystem::remove(file);
  std::filesystem::create_symlink(places_.root + "/elsewhere/config", file);
  EXPECT_EQ(names(), Names()) << "a link";
  std::filesystem::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(names(), Names()) << "a pipe, which nobody waits for";
}

// A user may make a cgroup of any name in a slice of its own, where the id of somebody else's
// container is no secret.
TEST_F(ContainerFilesTest, ACgroupThatAnotherMayHaveMadeIsNoContainers) {
  write(kDocker, "config.v2.json", R"({"Name":"/web"})");
  const std::string users = "/user.slice/user@1000.service";
  make("/cgroup" + users);
  ASSERT_EQ(names(users + "/docker-" + kId + ".scope"), Names{"web"});
  ::chmod((places_.cgroups + users).c_str(), 0775);
  EXPECT_EQ(names(users + "/docker-" + kId + ".scope"), Names());
  EXPECT_EQ(names("/no/such/group/docker-" + kId + ".scope"), Names());
  if (::geteuid() != 0) return;
  ::chmod((places_.cgroups + users).c_str(), 0755);
  ASSERT_EQ(::chown((places_.cgroups + users).c_str(), 1000, 1000), 0);
  EXPECT_EQ(names(users + "/docker-" + kId + ".scope"), Names());
}

TEST_F(ContainerFilesTest, AFileThatIsTooLargeIsNotRead) {
  write(kDocker, "config.v2.json",
        R"({"Name":"/web","x":")" + std::string(kMostContainerBytes, 'x') + R"("})");
  EXPECT_EQ(names(), Names());
}

TEST_F(ContainerFilesTest, WithoutADescriptorItIsAskedAgain) {
  write(kDocker, "config.v2.json", R"({"Name":"/web"})");
  const ContainerGroup group = container_group("/docker/" + kId).value();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool is_answered = read_container(places_, group).has_value();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(is_answered);
  EXPECT_TRUE(read_container(places_, group));
}

// The reader of processes asks once for a container, however many processes it has.
TEST_F(ContainerFilesTest, TheReaderRemembersWhatItHasRead) {
  write(kDocker, "config.v2.json", R"({"Name":"/web"})");
  const SystemProcReader reader("/proc", SystemProcReader::ask_name_service, places_);
  const auto container = [&](const std::string& cgroup) {
    std::optional<ContainerPtr> answer;
    while (!(answer = reader.container(cgroup))) std::this_thread::yield();
    return *answer;
  };
  EXPECT_EQ(container("/user.slice"), nullptr);
  const ContainerPtr web = container("/docker/" + kId);
  ASSERT_NE(web, nullptr);
  EXPECT_EQ(web->names, Names{"web"});
  std::filesystem::remove_all(places_.root + kDocker);
  EXPECT_EQ(container("/docker/" + kId + "/below"), web);
  EXPECT_EQ(container("/user.slice/" + kId), nullptr) << "what has its id elsewhere is not it";
}

}  // namespace
}  // namespace gpushare
