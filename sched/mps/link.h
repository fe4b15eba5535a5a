// SPDX-License-Identifier: Apache-2.0
// MpsLink: keeps NVIDIA's MPS control daemon running for the GPUs that are shared spatially, knows
// its clients, and says which processes a fault of one has ended. What to do is decided in
// sched/mps/plan.h and sched/mps/clients.h; the outside is behind sched/mps/host.h. Called on the
// agent's thread; only leave() blocks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sched/mps/client_files.h"
#include "sched/mps/clients.h"
#include "sched/mps/host.h"
#include "sched/mps/plan.h"

namespace gpushare {

using namespace std::chrono_literals;

struct MpsStatus {
  MpsState state = MpsState::kOff;
  pid_t pid = 0;  // the control daemon's; 0: there is none
  std::string pipe_directory;
  uint32_t clients = 0;    // that live
  uint32_t faults = 0;     // incidents (see sched/mps/clients.h) since the agent started
  std::string error;       // why the daemon was not started or does not answer; empty: all is well
  std::string last_fault;  // which clients the last incident ended; empty: none is over yet

  bool operator==(const MpsStatus&) const = default;
};

class MpsLink {
 public:
  MpsLink(std::unique_ptr<MpsHost> host, MpsClients::Describe describe)
      : host_(std::move(host)), describe_(std::move(describe)) {}

  // `gpus`: see MpsPlan::want(). `has_all_users`: one server takes the processes of all users; this
  // counts for the next daemon that is started.
  void want(std::optional<std::string> gpus, bool has_all_users);

  // Call it at the time that it returned last, or sooner. Time::max(): nothing is to be done.
  Time step(Time now);

  // The directory of the daemon's pipes for a process that starts to use the driver now; empty: it
  // must not become a client. See may_be_client().
  std::string pipe_for(const ProcessId& process);
  // A process that was given that directory has a context: it is a client from now on, and does the
  // others no harm when it dies (sched/mps/client_files.h).
  void note_context(Time now, const ProcessId& process, const ClientFiles::Work& work) {
    if (files_.keep(process)) plan_.ask_soon();
    files_.note_work(now, process, work);
  }
  // Which of them are still on a GPU, as far as is seen.
  void note_leaving(Time now, const ClientFiles::IsThere& is_there) {
    files_.note_leaving(now, is_there);
  }

  // Returns true for a client, as far as is known.
  bool is_client(const ProcessId& process) const { return clients_.contains(process); }

  // Returns true for a server, which holds the GPU context of its clients.
  bool is_server(const ProcessId& process) const { return clients_.is_server(process); }

  const MpsStatus& status() const { return status_; }

  // The last call: a daemon without clients ends; one with clients stays, for the next agent. Waits
  // for that, MpsHost::kPatience at most.
  void leave();

 private:
  enum class Run { kNone, kStart, kServers, kClients, kQuit };
  static constexpr int kSilencesTold = 3;
  static constexpr Nanos kToConnect = 500ms;

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
  ClientFiles files_{*host_};
  std::optional<std::string> wanted_;
  bool has_all_users_ = true;
  std::optional<MpsDaemon> daemon_;  // as of the last step
  bool has_looked_ = false;
  bool was_started_ = false;          // by us, and not seen yet
  std::optional<std::size_t> count_;  // of living clients; nullopt: the daemon was not asked yet
  Run run_ = Run::kNone;
  std::vector<ProcessId> servers_;  // to be asked for their clients; the last one is being asked
  int silences_ = 0;                // answers in a row that did not come
  std::optional<Time> comes_at_;    // a new client will have connected by then
  bool is_expecting_ = false;       // pipe_for() gave the directory since the last step
  MpsStatus status_;
};

}  // namespace gpushare
