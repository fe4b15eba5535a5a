// SPDX-License-Identifier: Apache-2.0
// MpsLink: keeps NVIDIA's MPS control daemon running for the GPUs that are shared spatially, knows
// its clients, and says whom a fault of one has ended. Decisions: sched/mps/plan.h,
// sched/mps/clients.h; the outside: sched/mps/host.h. The agent calls it on its one thread; never
// blocks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sched/mps/clients.h"
#include "sched/mps/host.h"
#include "sched/mps/plan.h"

namespace gpushare {

struct MpsStatus {
  MpsState state = MpsState::kOff;
  pid_t pid = 0;  // of the control daemon; 0: there is none
  std::string pipe_directory;
  uint32_t clients = 0;
  uint32_t faults = 0;     // incidents since the agent started
  std::string error;       // why it was not started or does not answer; empty: nothing is wrong
  std::string last_fault;  // whom the last one ended; empty: there was none, or it is not over

  bool operator==(const MpsStatus&) const = default;
};

class MpsLink {
 public:
  MpsLink(std::unique_ptr<MpsHost> host, MpsClients::Describe describe)
      : host_(std::move(host)), describe_(std::move(describe)) {}

  // See MpsPlan::want(). A daemon that runs keeps its users.
  void want(std::optional<std::string> gpus, bool has_all_users);

  // Returns when to call again.
  Time step(Time now);

  // The directory for a process that comes now; empty: it is not to become a client. See
  // may_be_client().
  std::string pipe_for(const ProcessId& process);
  // Is it one, as far as is known?
  bool is_client(const ProcessId& process) const { return clients_.contains(process); }

  // Does it hold the context of its clients?
  bool is_server(const ProcessId& process) const { return clients_.is_server(process); }

  const MpsStatus& status() const { return status_; }

  // For good: a daemon without clients ends, one with clients stays, for the next agent. Waits for
  // that, half a second at most.
  void leave();

 private:
  enum class Run { kNone, kStart, kServers, kClients, kQuit };
  static constexpr int kSilencesTold = 3;
  static constexpr Nanos kToConnect{500'000'000};

  void act(Time now, MpsPlan::Action action);
  void ask(Run run, const std::string& commands);
  void take(Time now, Run run, const Result<std::string>& answer);
  void take_clients(const std::string& text);
  void ask_next_server();
  void note_daemon(const std::optional<MpsDaemon>& daemon);
  void tell(const MpsIncident& incident);

  const std::unique_ptr<MpsHost> host_;
  const MpsClients::Describe describe_;
  MpsPlan plan_;
  MpsClients clients_;
  std::optional<std::string> wanted_;
  bool has_all_users_ = true;
  std::optional<MpsDaemon> daemon_;  // as of the last step
  bool has_looked_ = false;
  bool was_started_ = false;  // by us, and not seen yet
  std::optional<std::size_t> count_;
  Run run_ = Run::kNone;
  std::vector<ProcessId> servers_;  // to be asked for their clients; the last one is being asked
  int silences_ = 0;                // answers in a row that did not come
  std::optional<Time> comes_at_;    // a new client will have connected by then
  bool is_expecting_ = false;
  MpsStatus status_;
};

}  // namespace gpushare
