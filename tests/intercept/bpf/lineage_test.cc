// SPDX-License-Identifier: Apache-2.0
// Lines of descent in the running kernel, for every way in which a process can leave its parent.
#include "intercept/bpf/lineage.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "shmctl/base/fd.h"
#include "shmctl/base/proc_stat.h"
#include "shmctl/program/wait.h"

namespace gpushare {
namespace {

// A tree of processes below one: each tells its pid through a pipe and lives until the tree goes.
class Tree {
 public:
  // `grow` runs in the first process when plant() is called; it forks, and calls stay() in those
  // whose pids the test wants.
  explicit Tree(const std::function<void(Tree&)>& grow) {
    if (::pipe(pids_) != 0 || ::pipe(life_) != 0 || ::pipe(go_) != 0) std::abort();
    root_ = ::fork();
    if (root_ > 0) return;
    ::close(life_[1]);
    char byte = 0;
    if (::read(go_[0], &byte, 1) == 1) grow(*this);
    stay();
  }
  ~Tree() {
    ::close(life_[1]);  // ends all that stay
    ::waitpid(root_, nullptr, 0);
    for (const int fd : {pids_[0], pids_[1], life_[0], go_[0], go_[1]}) ::close(fd);
  }
  ProcessId root() const { return {root_, start_ticks_of(root_)}; }
  void plant() { ASSERT_EQ(::write(go_[1], "", 1), 1); }
  // The next process that stays.
  pid_t next() {
    pid_t pid = 0;
    EXPECT_EQ(::read(pids_[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
    return pid;
  }
  void end_root() {
    ::kill(root_, SIGKILL);
    ::waitpid(root_, nullptr, 0);
  }
  [[noreturn]] void stay() {
    const pid_t self = ::getpid();
    if (::write(pids_[1], &self, sizeof self) != sizeof self) ::_exit(1);
    char byte = 0;
    [[maybe_unused]] const ssize_t end = ::read(life_[0], &byte, 1);
    ::_exit(0);
  }

 private:
  int pids_[2], life_[2], go_[2];
  pid_t root_ = -1;
};

class LineageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = BpfLineage::start();
    if (!started && ::geteuid() != 0) GTEST_SKIP() << started.error().message();
    ASSERT_TRUE(started) << started.error().message();
    lineage_ = std::move(*started);
  }
  std::unique_ptr<BpfLineage> lineage_;
};

TEST_F(LineageTest, HoldsForEveryWayOfLeavingOnesParent) {
  const std::pair<const char*, std::function<void(Tree&)>> ways[] = {
      {"child",
       [](Tree& tree) {
         if (::fork() == 0) tree.stay();
       }},
      {"setsid",
       [](Tree& tree) {
         if (::fork() != 0) return;
         ::setsid();
         tree.stay();
       }},
      {"double fork",
       [](Tree& tree) {
         if (::fork() != 0) return;
         ::setsid();
         if (::fork() != 0) ::_exit(0);
         tree.stay();
       }},
      {"sibling",
       [](Tree& tree) {
         if (::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, 0, 0, 0) == 0) tree.stay();
       }},
      {"vfork of a thread",
       [](Tree& tree) {
         std::thread([&] {
           if (::fork() == 0) tree.stay();
         }).join();
       }},
      {"pid namespace",
       [](Tree& tree) {
         if (::unshare(CLONE_NEWPID) == 0 && ::fork() == 0) tree.stay();
       }},
  };
  for (const auto& [way, grow] : ways) {
    Tree tree(grow);
    const ProcessId root = tree.root();
    ASSERT_TRUE(lineage_->follow(root)) << way;
    tree.plant();
    const pid_t one = tree.next(), other = tree.next();  // the root stays, too
    tree.end_root();
    if (std::string_view(way) == "pid namespace") {
      EXPECT_TRUE(lineage_->founders()->contains(root)) << "it has another number in there";
      continue;
    }
    const pid_t left = one == root.pid ? other : one;
    EXPECT_EQ(lineage_->founder_of(left), root) << way;
    EXPECT_EQ(lineage_->founder_of(root.pid), std::nullopt) << "it has ended";
    EXPECT_TRUE(lineage_->founders()->contains(root)) << way;
  }
  EXPECT_EQ(lineage_->founder_of(::getpid()), std::nullopt);
  EXPECT_TRUE(eventually([&] { return lineage_->founders()->empty(); })) << "all have ended";
}

TEST_F(LineageTest, TheNearestFounderCountsAlsoForWhatWasThereBefore) {
  Tree tree([](Tree& t) {
    if (::fork() != 0) return;
    if (::fork() == 0) t.stay();
    t.stay();
  });
  tree.plant();
  std::vector<pid_t> all{tree.next(), tree.next(), tree.next()};
  const ProcessId root = tree.root();
  ASSERT_TRUE(lineage_->follow(root));
  for (const pid_t pid : all) EXPECT_EQ(lineage_->founder_of(pid), root);
  pid_t child = 0, grandchild = 0;
  for (const pid_t pid : all) {
    if (read_proc_stat(pid)->parent == root.pid) child = pid;
    if (pid != root.pid && read_proc_stat(pid)->parent != root.pid) grandchild = pid;
  }
  const ProcessId inner{child, start_ticks_of(child)};
  ASSERT_TRUE(lineage_->follow(inner));
  EXPECT_EQ(lineage_->founder_of(grandchild), inner);
  EXPECT_EQ(lineage_->founder_of(root.pid), root);
  ASSERT_TRUE(lineage_->follow(root)) << "again";
  EXPECT_EQ(lineage_->founder_of(grandchild), inner) << "is in the line below";
}

TEST_F(LineageTest, GoesOnWithoutItsObjectWhereItCanBePinned) {
  const std::string mount = ::testing::TempDir() + "/bpf-" + std::to_string(::getpid());
  ASSERT_EQ(::unshare(CLONE_NEWNS), 0);  // so that nothing is left behind
  ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  std::filesystem::create_directories(mount);
  ASSERT_EQ(::mount("none", mount.c_str(), "bpf", 0, nullptr), 0);
  const std::string folder = mount + "/gpushare";
  {
    Tree tree([](Tree& t) {
      if (::fork() != 0) return;
      if (::fork() != 0) ::_exit(0);
      t.stay();
    });
    const ProcessId root = tree.root();
    lineage_ = BpfLineage::start(folder).value();
    ASSERT_TRUE(lineage_->follow(root));
    lineage_.reset();
    tree.plant();  // while nobody looks
    const pid_t one = tree.next(), other = tree.next();
    tree.end_root();
    lineage_ = BpfLineage::start(folder).value();
    EXPECT_EQ(lineage_->founder_of(one == root.pid ? other : one), root);
  }
  EXPECT_TRUE(eventually([&] { return lineage_->founders()->empty(); }));
  lineage_.reset();
  EXPECT_FALSE(std::filesystem::exists(folder)) << "nobody is left to follow";
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  lineage_ = BpfLineage::start(folder).value();
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "others could put anything there";
  lineage_.reset();
  ::umount2(mount.c_str(), MNT_DETACH);
  std::filesystem::remove(mount);
}

TEST(Lineage, EveryControlPlaneHasAFolderOfItsOwn) {
  EXPECT_EQ(BpfLineage::folder_of("/run/gpushare/region"), "/sys/fs/bpf/run-gpushare-region");
  EXPECT_EQ(BpfLineage::folder_of("/gpushare-test-x"), "/sys/fs/bpf/gpushare-test-x");
  EXPECT_EQ(BpfLineage::folder_of("/a.b"), "/sys/fs/bpf/a-b");
}

TEST_F(LineageTest, WhoHasEndedFoundsNothing) {
  const auto refused = lineage_->follow({::getpid(), 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::no_such_process);
  EXPECT_EQ(lineage_->founder_of(::getpid()), std::nullopt);
}

TEST_F(LineageTest, AStormOfForksLosesNobody) {
  constexpr int kDaemons = 500;
  Tree tree([](Tree& t) {
    for (int i = 0; i < kDaemons; ++i)
      if (::fork() == 0) {
        if (::fork() != 0) ::_exit(0);
        t.stay();
      }
  });
  const ProcessId root = tree.root();
  ASSERT_TRUE(lineage_->follow(root));
  tree.plant();
  for (int i = 0; i <= kDaemons; ++i) {
    const pid_t pid = tree.next();
    EXPECT_EQ(lineage_->founder_of(pid), root) << i;
  }
}

}  // namespace
}  // namespace gpushare
