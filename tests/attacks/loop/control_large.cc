// SPDX-License-Identifier: Apache-2.0
// Requests of nearly 64 KiB that cost a parser most, over many connections at once: lists in lists,
// and one long list. It reads the answers, so that it is never dropped.
#include <poll.h>

#include <string>
#include <vector>

#include "tests/attacks/loop/attack.h"

int main(int argc, char** argv) {
  using namespace gpushare::attack;
  const Attack attack(argc, argv);
  const std::string path = path_of("GPUSHARE_SOCKET");
  const std::string deep = std::string(65'000, '[') + "\n";
  std::string wide = "[0";
  while (wide.size() < 65'000) wide += ",0";
  wide += "]\n";
  std::vector<Client> clients(48);
  unsigned long long count = 0;
  while (attack.goes_on()) {
    for (std::size_t i = 0; i < clients.size(); ++i) {
      Client& client = clients[i];
      if (!client.is_connected(path)) continue;
      if (client.unsent.empty()) client.unsent = i % 2 == 0 ? deep : wide;
      const ssize_t sent = client.send();
      if (sent > 0 && client.unsent.empty()) ++count;
      char answer[4096];
      const ssize_t got = ::recv(client.fd.get(), answer, sizeof answer, MSG_DONTWAIT);
      if (got == 0 || (sent < 0 && errno == EPIPE)) client.fd.reset();
    }
  }
  return Attack::say(count);
}
