// SPDX-License-Identifier: Apache-2.0
// Connects to the socket of the shim as fast as it can, from several threads, and hangs up: at
// once, or when it was sent a slot or nothing. Any user may connect there.
#include <atomic>
#include <thread>
#include <vector>

#include "tests/attacks/loop/attack.h"

int main(int argc, char** argv) {
  using namespace gpushare::attack;
  const Attack attack(argc, argv);
  const std::string path = path_of("GPUSHARE_SHIM_SOCKET");
  std::atomic<unsigned long long> count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, does_wait = i % 2 == 0] {
      while (attack.goes_on()) {
        const gpushare::Fd connection = connect_to(path);
        if (!connection.is_open()) continue;
        ++count;
        char answer = 0;
        if (does_wait) (void)::recv(connection.get(), &answer, 1, 0);
      }
    });
  for (std::thread& thread : threads) thread.join();
  return Attack::say(count);
}
