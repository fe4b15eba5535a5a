// SPDX-License-Identifier: Apache-2.0
// Clients of the control socket that ask for much and read a byte now and then, so that they never
// stand still, and others that are silent from the beginning.
#include <string>
#include <thread>
#include <vector>

#include "tests/attacks/loop/attack.h"

int main(int argc, char** argv) {
  using namespace gpushare::attack;
  const Attack attack(argc, argv);
  const std::string path = path_of("GPUSHARE_SOCKET");
  const std::string request = "{\"op\":\"status\"}\n{\"op\":\"trace\",\"seconds\":3600}\n";
  std::vector<gpushare::Fd> slow(200), silent(200);
  unsigned long long count = 0;
  while (attack.goes_on()) {
    for (gpushare::Fd& client : slow) {
      char one = 0;
      const bool is_there =
          client.is_open() && (::recv(client.get(), &one, 1, MSG_DONTWAIT) > 0 || errno == EAGAIN);
      if (is_there) continue;
      client = connect_to(path);
      if (!client.is_open()) continue;
      ++count;
      (void)::send(client.get(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    for (gpushare::Fd& client : silent)
      if (!client.is_open()) client = connect_to(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Attack::say(count);
}
