// SPDX-License-Identifier: Apache-2.0
// As many clients of the control socket as it takes, each of which asks again and again and never
// reads an answer. The answers are large: they repeat what is wrong with the request. A client that
// is dropped comes back.
#include <string>
#include <vector>

#include "tests/attacks/loop/attack.h"

int main(int argc, char** argv) {
  using namespace gpushare::attack;
  const Attack attack(argc, argv);
  const std::string path = path_of("GPUSHARE_SOCKET");
  const std::string request = "{\"op\":\"" + std::string(60'000, 'x') + "\"}\n";
  std::vector<Client> clients(300);
  unsigned long long count = 0;
  while (attack.goes_on()) {
    for (Client& client : clients) {
      if (!client.is_connected(path)) continue;
      if (client.unsent.empty()) client.unsent = request;
      const ssize_t sent = client.send();
      count += client.unsent.empty();
      if (sent < 0 && errno != EAGAIN) client.fd.reset();
    }
  }
  return Attack::say(count);
}
