// SPDX-License-Identifier: Apache-2.0
#include "shmctl/shim/container_socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "shmctl/base/unix_socket.h"
#include "shmctl/program/temp_folder.h"

namespace gpushare {
namespace {

class ContainerSocket : public ::testing::Test {
 protected:
  static ino_t inode(const std::string& path) {
    struct stat status{};
    return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
  }

  const TempFolder folder_ = TempFolder::make("gpushare-containers").value();
  const std::string socket_ = folder_.at("shim.sock");
  const std::string there_ = folder_.at("containers/shim.sock");
};

TEST_F(ContainerSocket, NothingElseIsInTheFolderWhoeverListensThere) {
  for (int agent = 0; agent < 3; ++agent) {
    ::unlink(socket_.c_str());
    const Fd listener = listen_on_socket(socket_, 0666, "listen").value();
    for (int time = 0; time < 2; ++time) {
      ASSERT_TRUE(share_with_containers(socket_));
      EXPECT_EQ(inode(there_), inode(socket_));
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(container_folder(socket_)), {}),
                1);
    }
  }
}

TEST_F(ContainerSocket, ASocketThatIsNotThereIsAnErrorThatNamesIt) {
  const auto shared = share_with_containers(socket_);
  ASSERT_FALSE(shared);
  EXPECT_NE(shared.error().message().find(there_), std::string::npos) << shared.error().message();
}

}  // namespace
}  // namespace gpushare
