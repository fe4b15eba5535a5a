// SPDX-License-Identifier: Apache-2.0
// MpsClients: which processes are clients of which MPS server, and which of them a fatal fault has
// ended. It does no I/O; called on the agent's thread.
//
// The driver reports a fault of one client to all clients with a context on the same GPU, without
// saying whose it was (NVIDIA's MPS documentation, "Memory Protection and Error Containment"). The
// server is then in the state FAULT and takes no new clients until all of them have ended; a server
// that ends takes its clients along. So an incident begins when one of these is seen, or when
// clients of two tenants end almost at once. It is over when all that were clients then have ended,
// or after kSettled: a client that still runs by then does not look at errors.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "intercept/event.h"
#include "shmctl/base/clock.h"

namespace gpushare {

using namespace std::chrono_literals;

struct MpsClient {
  ProcessId process;
  std::string tenant, command;
};

struct MpsIncident {
  enum class Cause {
    kFault,        // the server is in the state FAULT
    kServerEnded,  // with clients
    kTogether,     // clients of two tenants ended within kTogether
  };
  Cause cause{};
  bool is_over = false;  // otherwise it has just begun
  pid_t server = 0;
  std::vector<MpsClient> ended, alive;  // of the server's clients, so far
};

// For a log line: "tenant batch: python (pid 12), tenant b: spin (pid 17)".
std::string names_of(std::span<const MpsClient> clients);

class MpsClients {
 public:
  static constexpr Nanos kTogether = 500ms;  // two clients that end within this ended together
  static constexpr Nanos kBefore =
      3s;  // victims of a fault ended at most so long before it is seen
  static constexpr Nanos kSettled = 10s;  // the longest incident

  using HasEnded = std::function<bool(const ProcessId&)>;
  using Describe = std::function<MpsClient(const ProcessId&)>;

  // Takes what a server said of its state and its clients. `describe` is called once for each new
  // client. `is_whole`: those that it does not name are none of its clients.
  void update(const ProcessId& server, bool has_fault, bool is_whole,
              std::span<const ProcessId> clients, const Describe& describe);

  // Looks which clients and servers have ended. Returns each incident twice: when it begins and
  // when it is over.
  std::vector<MpsIncident> step(Time now, const HasEnded& has_ended);

  // How many clients live.
  std::size_t count() const;
  // Returns true for a living client.
  bool contains(const ProcessId& process) const;
  bool is_server(const ProcessId& process) const { return servers_.contains(process); }
  // Returns true while a server turns new clients away.
  bool has_fault() const;
  // Returns true if a client has ended since the last call.
  bool take_news() { return std::exchange(has_news_, false); }

 private:
  // A client that so many answers of its server in a row do not name has left it, and lives on: it
  // has ended its context, or runs another program now.
  static constexpr int kGone = 2;

  struct Entry {
    MpsClient client;
    std::optional<Time> ended;
    bool is_vague = false;  // it may have ended at any time in a long while
    int unnamed = 0;        // answers in a row that have not named it
  };
  struct Server {
    std::vector<Entry> entries;
    bool has_fault = false, has_ended = false;
    bool is_told = false;  // step() has reported the fault that the server still has
    std::optional<MpsIncident::Cause> cause;
    Time since{};
  };
  static std::optional<MpsIncident::Cause> cause_of(Time now, const Server& server);
  static MpsIncident incident(const ProcessId& process, const Server& server, bool is_over);

  void note_living();

  // The last step(). After a longer while than kTogether, in which the agent stood still, nobody
  // knows which clients ended together.
  std::optional<Time> looked_;
  std::map<ProcessId, Server> servers_;
  std::set<ProcessId> living_;  // clients of all of them; as of the last update() or step()
  bool has_news_ = false;
};

}  // namespace gpushare
