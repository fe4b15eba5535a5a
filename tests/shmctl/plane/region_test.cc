// SPDX-License-Identifier: Apache-2.0
#include "shmctl/plane/region.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shmctl/base/fd.h"
#include "shmctl/plane/ledger.h"
#include "shmctl/program/temp_folder.h"
#include "tests/shmctl/plane/stepped_child.h"
#include "tests/shmctl/plane/temp_region.h"

namespace gpushare {
namespace {

using testing::HasSubstr;

constexpr uid_t kNobody = 65534;

class RegionTest : public testing::Test {
 protected:
  const std::string& name() const { return name_.name(); }
  std::string path() const { return name_.path(); }

  // A file under the name with these first bytes, then zeroes up to `size`.
  void put_file(const void* bytes, std::size_t count, std::size_t size) {
    const Fd fd(::open(path().c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644));
    ASSERT_TRUE(fd.is_open());
    ASSERT_EQ(::write(fd.get(), bytes, count), static_cast<ssize_t>(count));
    ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
  }

  // A region that is valid except for what `damage` does to its header.
  void put_damaged(const std::function<void(RegionHeader&)>& damage,
                   std::size_t size = sizeof(Region)) {
    alignas(RegionHeader) char bytes[sizeof(RegionHeader)];
    ASSERT_TRUE(ControlPlane::remove(name()));
    ASSERT_TRUE(ControlPlane::create(name()));
    std::ifstream(path(), std::ios::binary).read(bytes, sizeof bytes);
    ASSERT_TRUE(ControlPlane::remove(name()));
    damage(*reinterpret_cast<RegionHeader*>(bytes));
    put_file(bytes, sizeof bytes, size);
  }

  // Checks that all three ways to open refuse, that the error has `found`, and that the file stays.
  void expect_refused(const std::string& found) {
    for (auto open :
         {&ControlPlane::create, &ControlPlane::open_existing, &ControlPlane::open_read_only}) {
      const auto plane = open(name());
      ASSERT_FALSE(plane);
      EXPECT_THAT(plane.error().message(), HasSubstr(name()));
      EXPECT_THAT(plane.error().message(), HasSubstr(found));
    }
    EXPECT_EQ(::access(path().c_str(), F_OK), 0);
  }

 private:
  TempName name_;
};

TEST_F(RegionTest, CreatedRegionIsEmptyAndReadableByAll) {
  const auto plane = ControlPlane::create(name());
  ASSERT_TRUE(plane) << plane.error().message();
  EXPECT_EQ(plane->region().header.version, kLayoutVersion);
  EXPECT_EQ(read_record(plane->region().agent)->agent_pid, 0u);
  EXPECT_EQ(read_record(plane->region().tenants[kMaxTenants - 1].record)->name[0], '\0');
  EXPECT_EQ(read_record(plane->region().ledger[kMaxLedger - 1])->pid, 0);
  struct stat file;
  ASSERT_EQ(::stat(path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0644u);
}

TEST_F(RegionTest, ModeDoesNotDependOnTheUmask) {
  const mode_t before = ::umask(0077);
  const auto plane = ControlPlane::create(name());
  ::umask(before);
  struct stat file;
  ASSERT_EQ(::stat(path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0644u);
}

TEST_F(RegionTest, CreateKeepsWhatIsThere) {
  {
    auto plane = ControlPlane::create(name());
    write_record(plane->region().ledger[5], LedgerRecord{.pid = 42, .freezes = 1});
  }
  auto again = ControlPlane::create(name());
  ASSERT_TRUE(again);
  EXPECT_EQ(read_record(again->region().ledger[5])->pid, 42);
}

TEST_F(RegionTest, ReaderSeesWhatTheWriterWritesAndCannotWrite) {
  auto writer = ControlPlane::create(name());
  const auto reader = ControlPlane::open_read_only(name());
  ASSERT_TRUE(reader) << reader.error().message();
  write_record(writer->region().agent, AgentRecord{.ticks = 17});
  EXPECT_EQ(read_record(reader->region().agent)->ticks, 17u);

  std::ifstream maps("/proc/self/maps");
  int read_only = 0, writable = 0;
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with(path())) continue;
    read_only += line.find(" r--s ") != line.npos;
    writable += line.find(" rw-s ") != line.npos;
  }
  EXPECT_EQ(read_only, 1);
  EXPECT_EQ(writable, 1);
}

TEST_F(RegionTest, OpeningDoesNotMakeOne) {
  for (auto open : {&ControlPlane::open_existing, &ControlPlane::open_read_only}) {
    const auto plane = open(name());
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().code, std::errc::no_such_file_or_directory);
  }
}

TEST_F(RegionTest, RemoveTwiceIsNoError) {
  ASSERT_TRUE(ControlPlane::create(name()));
  EXPECT_TRUE(ControlPlane::remove(name()));
  EXPECT_TRUE(ControlPlane::remove(name()));
}

TEST_F(RegionTest, RemovedRegionStaysMappedAndTheNextOneIsNew) {
  auto old_plane = ControlPlane::create(name());
  ASSERT_TRUE(ControlPlane::remove(name()));
  write_record(old_plane->region().agent, AgentRecord{.ticks = 1});
  auto new_plane = ControlPlane::create(name());
  ASSERT_TRUE(new_plane);
  EXPECT_EQ(read_record(new_plane->region().agent)->ticks, 0u);
  EXPECT_EQ(read_record(old_plane->region().agent)->ticks, 1u);
}

TEST_F(RegionTest, NamesThatAreNoRegionNamesAreRefused) {
  for (const std::string bad : {"", "/", "gpushare", "a/b", "/a//b", "/a/", "/a/./b", "/..", "/.",
                                "/a b", "/a b/c", "/../etc/passwd", "/run/../etc/passwd"}) {
    for (auto open :
         {&ControlPlane::create, &ControlPlane::open_existing, &ControlPlane::open_read_only}) {
      const auto plane = open(bad);
      ASSERT_FALSE(plane) << bad;
      EXPECT_EQ(plane.error().code, std::errc::invalid_argument);
    }
    EXPECT_FALSE(ControlPlane::remove(bad));
  }
  EXPECT_FALSE(ControlPlane::create("/" + std::string(300, 'a')));
}

TEST_F(RegionTest, OtherLayoutVersionIsRefusedWithBothVersions) {
  put_damaged([](RegionHeader& header) { header.version = 99; });
  expect_refused("has layout version 99, this build speaks " + std::to_string(kLayoutVersion) +
                 ": stop the other gpushared");
}

TEST_F(RegionTest, OtherShapeIsRefused) {
  using Damage = std::function<void(RegionHeader&)>;
  const Damage damages[] = {
      [](RegionHeader& header) { header.region_bytes += 64; },
      [](RegionHeader& header) { header.header_bytes = 128; },
      [](RegionHeader& header) { header.max_gpus = 8; },
      [](RegionHeader& header) { header.max_tenants = 0; },
      [](RegionHeader& header) { header.max_processes = ~0u; },
      [](RegionHeader& header) { header.max_ledger = 1; },
  };
  for (const Damage& damage : damages) {
    put_damaged(damage);
    expect_refused("has another shape");
  }
}

TEST_F(RegionTest, GarbageIsRefused) {
  const std::string text(4096, 'x');
  put_file(text.data(), text.size(), sizeof(Region));
  expect_refused("is not a control plane: magic 0x7878787878787878");
}

TEST_F(RegionTest, ZeroesAreRefused) {
  put_file("", 0, sizeof(Region));
  expect_refused("is not a control plane");
}

TEST_F(RegionTest, FileShorterThanAHeaderIsRefused) {
  put_file("", 0, 0);
  expect_refused("is truncated: 0 bytes");
  put_damaged([](RegionHeader&) {}, sizeof(RegionHeader) - 1);
  expect_refused("is truncated: 63 bytes");
}

TEST_F(RegionTest, FileThatIsNotAsLongAsItsHeaderSaysIsRefused) {
  put_damaged([](RegionHeader&) {}, sizeof(Region) - 4096);
  expect_refused("it was truncated");
  put_damaged([](RegionHeader&) {}, sizeof(Region) + 4096);
  expect_refused("it was extended");
}

TEST_F(RegionTest, OneThatCannotBeReadIsReplacedAndNoOther) {
  const std::string next = name() + ".new";
  const auto made = [&] {
    auto plane = ControlPlane::create(next);
    write_record(plane->region().agent, AgentRecord{.ticks = 17});
  };
  put_damaged([](RegionHeader& header) { header.version = 99; });
  EXPECT_EQ(ControlPlane::create(name()).error().code, ControlPlane::kUnreadable);
  made();
  const auto aside = ControlPlane::replace(name(), next);
  ASSERT_TRUE(aside) << aside.error().message();
  EXPECT_EQ(*aside, path() + ".unread");
  EXPECT_EQ(read_record(ControlPlane::create(name())->region().agent)->ticks, 17u);
  EXPECT_EQ(::access((path() + ".new").c_str(), F_OK), -1);

  made();
  EXPECT_EQ(ControlPlane::replace(name(), next).error().code, std::errc::invalid_argument);
  put_damaged([](RegionHeader& header) { header.version = 98; });
  EXPECT_TRUE(ControlPlane::replace(name(), next)) << "what was set aside before goes";
  made();
  put_damaged([](RegionHeader& header) { header.version = 99; });
  ASSERT_EQ(::chmod(path().c_str(), 0666), 0);
  EXPECT_EQ(ControlPlane::replace(name(), next).error().code, std::errc::invalid_argument)
      << "others may have written it";
  EXPECT_EQ(::access(path().c_str(), F_OK), 0);
  EXPECT_TRUE(ControlPlane::remove(next));
  ::unlink(aside->c_str());
}

class LedgerOfAnotherLayout : public RegionTest {
 protected:
  // A ledger of these many entries at this place, of which the last one is written twice.
  void put_ledger(uint32_t format, uint32_t offset, uint32_t entries, std::size_t size) {
    put_damaged(
        [&](RegionHeader& header) {
          header.version = 99;
          header.max_ledger = entries;
          header.ledger_format = format;
          header.ledger_offset = offset;
        },
        size);
    Slot<LedgerRecord> slot{};
    write_record(slot, LedgerRecord{.pid = 41});
    write_record(slot, LedgerRecord{.pid = 42, .start_ticks = 7, .freezes = 1});
    const Fd fd(::open(path().c_str(), O_RDWR));
    ASSERT_EQ(::pwrite(fd.get(), static_cast<const void*>(&slot), sizeof slot,
                       static_cast<off_t>(offset + (entries - 1) * sizeof slot)),
              static_cast<ssize_t>(sizeof slot));
  }
  std::vector<int32_t> listed() {
    std::vector<int32_t> pids;
    for_each_entry(*into_, [&](uint32_t, const LedgerRecord& one) { pids.push_back(one.pid); });
    return pids;
  }
  static constexpr std::size_t kEntry = sizeof(Slot<LedgerRecord>);
  const std::unique_ptr<Region> into_ = std::make_unique<Region>();
};

TEST_F(LedgerOfAnotherLayout, IsFoundByItsHeader) {
  put_ledger(kLedgerFormat, 640, 5000, 640 + 5000 * kEntry);
  const auto copied = ControlPlane::copy_ledger(name(), *into_);
  EXPECT_TRUE(copied) << copied.error().message();
  EXPECT_EQ(listed(), std::vector<int32_t>{42});
}

TEST_F(LedgerOfAnotherLayout, IsNotTakenInPart) {
  put_ledger(kLedgerFormat, 640, 50, 640 + 50 * kEntry);
  ASSERT_EQ(::truncate(path().c_str(), static_cast<off_t>(640 + 50 * kEntry - 1)), 0);
  EXPECT_EQ(ControlPlane::copy_ledger(name(), *into_).error().code, ControlPlane::kUnreadable);
  for (const uint32_t format : {0u, kLedgerFormat + 1}) {
    put_ledger(format, 640, 50, 640 + 50 * kEntry);
    EXPECT_EQ(ControlPlane::copy_ledger(name(), *into_).error().code, ControlPlane::kUnreadable)
        << format;
  }
}

TEST_F(LedgerOfAnotherLayout, IsNotTakenFromAFileThatOthersMayWrite) {
  put_ledger(kLedgerFormat, 640, 50, 640 + 50 * kEntry);
  ASSERT_EQ(::chmod(path().c_str(), 0666), 0);
  EXPECT_EQ(ControlPlane::copy_ledger(name(), *into_).error().code, std::errc::invalid_argument);
  EXPECT_TRUE(listed().empty());
}

TEST_F(LedgerOfAnotherLayout, IsAlsoFoundWhereAnOlderVersionHasMadeTheRegion) {
  put_damaged([](RegionHeader& header) { header.ledger_format = header.ledger_offset = 0; });
  auto plane = ControlPlane::create(name());
  ASSERT_TRUE(plane);
  EXPECT_EQ(plane->region().header.ledger_format, kLedgerFormat);
  EXPECT_EQ(plane->region().header.ledger_offset, offsetof(Region, ledger));
}

TEST_F(RegionTest, SymbolicLinkIsRefused) {
  ASSERT_TRUE(ControlPlane::create(name()));
  const std::string target = path() + ".target";
  ASSERT_EQ(::rename(path().c_str(), target.c_str()), 0);
  ASSERT_EQ(::symlink(target.c_str(), path().c_str()), 0);
  expect_refused("is a symbolic link");
  ::unlink(target.c_str());
}

TEST_F(RegionTest, FifoIsRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0644), 0);
  expect_refused("is not a regular file");
}

TEST_F(RegionTest, FileThatOthersMayWriteIsRefused) {
  ASSERT_TRUE(ControlPlane::create(name()));
  ASSERT_EQ(::chmod(path().c_str(), 0664), 0);
  expect_refused("has mode 0664, expected 0644");
}

TEST_F(RegionTest, FileOfSomebodyElseIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a file away";
  ASSERT_TRUE(ControlPlane::create(name()));
  ASSERT_EQ(::chown(path().c_str(), kNobody, kNobody), 0);
  expect_refused("belongs to uid 65534, expected root or uid 0");
}

TEST_F(RegionTest, OrdinaryUserMayReadRootsRegionAndNotWriteIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become an ordinary user";
  ASSERT_TRUE(ControlPlane::create(name()));
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(kNobody) != 0) ::_exit(1);
    if (!ControlPlane::open_read_only(name())) ::_exit(2);
    const auto writer = ControlPlane::open_existing(name());
    ::_exit(!writer && writer.error().code == std::errc::permission_denied ? 0 : 3);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A region named by its path, in folders of this test.
class RegionFolderTest : public testing::Test {
 protected:
  void expect_refused(const std::string& found) {
    for (auto open :
         {&ControlPlane::create, &ControlPlane::open_existing, &ControlPlane::open_read_only}) {
      const auto plane = open(name_);
      ASSERT_FALSE(plane);
      EXPECT_EQ(plane.error().code, std::errc::invalid_argument);
      EXPECT_THAT(plane.error().message(), HasSubstr(folder_));
      EXPECT_THAT(plane.error().message(), HasSubstr(found));
    }
    EXPECT_FALSE(ControlPlane::open_lock_file(name_));
    EXPECT_NE(::access(name_.c_str(), F_OK), 0);
  }

  const TempFolder temporary_ = TempFolder::make("gpushare-region").value();
  const std::string folder_ = temporary_.path() + "/run";
  const std::string name_ = folder_ + "/region";
};

TEST_F(RegionFolderTest, TheFolderIsMadeWhateverTheUmask) {
  EXPECT_EQ(ControlPlane::open_read_only(name_).error().code, std::errc::no_such_file_or_directory);
  const mode_t before = ::umask(0077);
  auto plane = ControlPlane::create(name_);
  ::umask(before);
  ASSERT_TRUE(plane) << plane.error().message();
  struct stat status;
  ASSERT_EQ(::stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0755u);
  write_record(plane->region().agent, AgentRecord{.ticks = 17});
  const auto reader = ControlPlane::open_read_only(name_);
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_EQ(read_record(reader->region().agent)->ticks, 17u);
  EXPECT_TRUE(ControlPlane::open_lock_file(name_));
  EXPECT_TRUE(ControlPlane::remove(name_));
  EXPECT_TRUE(ControlPlane::remove(name_));
}

TEST_F(RegionFolderTest, AFolderThatIsALinkIsRefused) {
  const std::string elsewhere = temporary_.path() + "/elsewhere";
  ASSERT_EQ(::mkdir(elsewhere.c_str(), 0755), 0);
  ASSERT_EQ(::symlink(elsewhere.c_str(), folder_.c_str()), 0);
  expect_refused("is a symbolic link");
}

TEST_F(RegionFolderTest, AFolderThatOthersMayChangeIsRefusedUnlessItIsSticky) {
  ASSERT_EQ(::mkdir(folder_.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  expect_refused("has mode 0777");
  ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
  EXPECT_TRUE(ControlPlane::create(name_));
}

TEST_F(RegionFolderTest, AFolderOfSomebodyElseIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a folder away";
  ASSERT_EQ(::mkdir(folder_.c_str(), 0755), 0);
  ASSERT_EQ(::chown(folder_.c_str(), kNobody, kNobody), 0);
  expect_refused("belongs to uid 65534");
}

TEST_F(RegionTest, CreatorsAtTheSameTimeGetTheSameRegion) {
  constexpr int kCreators = 8;
  std::vector<pid_t> children;
  for (int i = 0; i < kCreators; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) {
      auto plane = ControlPlane::create(name());
      if (!plane) ::_exit(1);
      plane->region().header.publication.fetch_add(1);
      ::_exit(0);
    }
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(ControlPlane::open_existing(name())->region().header.publication, uint64_t{kCreators});
}

TEST_F(RegionTest, MakerThatDiesAnywhereLeavesAWholeRegionOrNone) {
  int absent = 0, whole = 0;
  // In a folder of its own: other programs make and remove regions meanwhile.
  const TempFolder temporary = TempFolder::make("gpushare-region").value();
  const std::string& folder = temporary.path();
  const std::string path = folder + "/region";
  const auto count_files = [&] {
    return std::distance(std::filesystem::directory_iterator(folder), {});
  };
  const bool is_traced = die_along(
      Stride::kSystemCall, [&] { ASSERT_TRUE(ControlPlane::remove(path)); },
      [&] { (void)ControlPlane::create(path); },
      [&] {
        const auto found = ControlPlane::open_read_only(path);
        if (found) {
          ++whole;
        } else {
          ++absent;
          ASSERT_EQ(found.error().code, std::errc::no_such_file_or_directory);
          ASSERT_EQ(count_files(), 0);
        }
        ASSERT_TRUE(ControlPlane::create(path));
      },
      40);
  if (!is_traced) GTEST_SKIP() << "no stepping here: ptrace is not allowed, or sanitized build";
  EXPECT_GT(absent, 0);
  EXPECT_GT(whole, 0);
}

}  // namespace
}  // namespace gpushare
