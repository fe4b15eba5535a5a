// SPDX-License-Identifier: Apache-2.0
// MpsClients: who is a client of which MPS server, and whom a fatal fault has ended. Pure.
//
// A fault of one client is reported by the driver to all clients with a context on the same GPU,
// without saying whose it was (NVIDIA's MPS documentation, "Memory Protection and Error
// Containment"). The server is then in state FAULT and takes no new clients there until all of them
// have ended; a server that ends itself takes its clients along. So an incident begins when either
// is seen, or when clients of two tenants end almost at once; it is over when all who were clients
// then have ended, or after kSettled: who still runs by then does not look at errors.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "intercept/event.h"
#include "shmctl/base/clock.h"

namespace gpushare {

struct MpsClient {
  ProcessId process;
  std::string tenant, command;
};

struct MpsIncident {
  enum class Cause { kFault, kServerEnded, kTogether };
  Cause cause{};
  bool is_over = false;
  pid_t server = 0;
  std::vector<MpsClient> ended, alive;
};

// "tenant batch: python (pid 12), tenant b: spin (pid 17)"
std::string names_of(std::span<const MpsClient> clients);

class MpsClients {
 public:
  // Two that ended within this ended together; also: how long before a fault was seen may its
  // victims have ended.
  static constexpr Nanos kTogether{500'000'000};
  static constexpr Nanos kBefore{3'000'000'000};
  static constexpr Nanos kSettled{10'000'000'000};

  using HasEnded = std::function<bool(const ProcessId&)>;
  using Describe = std::function<MpsClient(const ProcessId&)>;

  // What a server said. Each client is described once, when it is new.
  void update(const ProcessId& server, bool has_fault, std::span<const ProcessId> clients,
              const Describe& describe);

  // Each incident twice: when it begins and when it is over.
  std::vector<MpsIncident> step(Time now, const HasEnded& has_ended);

  // Of those that live.
  std::size_t count() const;
  bool contains(const ProcessId& process) const;
  bool is_server(const ProcessId& process) const { return servers_.contains(process); }
  // Does a server turn new clients away?
  bool has_fault() const;
  // Has anyone ended since this was last asked?
  bool take_news() { return std::exchange(has_news_, false); }

 private:
  struct Entry {
    MpsClient client;
    std::optional<Time> ended;
  };
  struct Server {
    std::vector<Entry> entries;
    bool has_fault = false, has_ended = false;
    bool is_told = false;  // the fault that it still has
    std::optional<MpsIncident::Cause> cause;
    Time since{};
  };
  static std::optional<MpsIncident::Cause> cause_of(Time now, const Server& server);
  static MpsIncident incident(const ProcessId& process, const Server& server, bool is_over);

  std::map<ProcessId, Server> servers_;
  bool has_news_ = false;
};

}  // namespace gpushare
