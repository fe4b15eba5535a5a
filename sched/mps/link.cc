// SPDX-License-Identifier: Apache-2.0
#include "sched/mps/link.h"

#include <algorithm>
#include <sstream>
#include <thread>
#include <utility>

#include "shmctl/base/log.h"

namespace gpushare {
namespace {

// The pids in the lines that hold nothing but numbers.
std::vector<pid_t> pids_in(const std::string& text) {
  std::vector<pid_t> pids;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of("0123456789 \t\r") != std::string::npos) continue;
    std::istringstream words(line);
    for (pid_t pid = 0; words >> pid;)
      if (pid > 0) pids.push_back(pid);
  }
  return pids;
}

std::string gpus_text(const std::string& gpus) { return gpus.empty() ? "all GPUs" : gpus; }

const char* text_of(MpsIncident::Cause cause) {
  switch (cause) {
    case MpsIncident::Cause::kFault:
      return "a fatal fault of a client";
    case MpsIncident::Cause::kServerEnded:
      return "the server has ended";
    case MpsIncident::Cause::kTogether:
      return "clients of several tenants ended together";
  }
  return "";
}

}  // namespace

void MpsLink::want(std::optional<std::string> gpus, bool has_all_users) {
  wanted_ = gpus;
  has_all_users_ = has_all_users;
  has_looked_ = false;
  plan_.want(std::move(gpus));
}

Time MpsLink::step(Time now) {
  const bool is_off = !wanted_ && !daemon_ && has_looked_ && run_ == Run::kNone;
  if (is_off && files_.is_empty()) return Time::max();
  has_looked_ = true;
  if (run_ != Run::kNone)
    if (const auto answer = host_->finished(now))
      take(now, std::exchange(run_, Run::kNone), *answer);

  const auto daemon = host_->daemon();
  note_daemon(daemon);
  const auto has_ended = [&](const ProcessId& process) { return host_->has_ended(process); };
  files_.step(now, has_ended);
  for (const MpsIncident& incident : clients_.step(now, has_ended)) tell(incident);
  if (count_) count_ = clients_.count();
  if (clients_.take_news()) plan_.ask_soon();
  if (std::exchange(is_expecting_, false)) comes_at_ = now + kToConnect;
  if (comes_at_ && now >= *comes_at_) {
    comes_at_.reset();
    plan_.ask_soon();
  }

  MpsPlan::Seen seen;
  seen.has_program = daemon || host_->has_program();
  if (daemon) seen.gpus = daemon->gpus;
  seen.clients = count_;
  seen.has_fault = clients_.has_fault();
  seen.is_asking = run_ != Run::kNone;
  act(now, plan_.decide(now, seen));

  status_.state = plan_.state();
  status_.pid = daemon ? daemon->process.pid : 0;
  status_.pipe_directory = host_->pipe_directory();
  status_.clients = static_cast<uint32_t>(clients_.count());
  Time next = plan_.next();
  if (run_ != Run::kNone) next = std::min(next, now + MpsPlan::kStartLook);
  if (!files_.is_empty()) next = std::min(next, now + MpsPlan::kLook);
  return next;
}

void MpsLink::note_daemon(const std::optional<MpsDaemon>& daemon) {
  if (daemon && (!daemon_ || daemon_->process != daemon->process)) {
    if (daemon_) log_warning("MPS: the control daemon (pid {}) has ended", daemon_->process.pid);
    log_info("MPS: control daemon {} (pid {}) for {}, in {}",
             std::exchange(was_started_, false) ? "started" : "taken up", daemon->process.pid,
             gpus_text(daemon->gpus), host_->pipe_directory());
    if (wanted_ && *wanted_ != daemon->gpus)
      log_warning(
          "MPS: it serves {}, wanted are {}: it is replaced when its last client has ended; until "
          "then new programs take turns with those",
          gpus_text(daemon->gpus), gpus_text(*wanted_));
    status_.error.clear();
    silences_ = 0;
    count_.reset();
  } else if (!daemon && daemon_) {
    if (wanted_)
      log_warning("MPS: the control daemon (pid {}) has ended; it is started again",
                  daemon_->process.pid);
    else
      log_info("MPS: the control daemon (pid {}) has ended", daemon_->process.pid);
    count_.reset();
  }
  daemon_ = daemon;
}

void MpsLink::act(Time now, MpsPlan::Action action) {
  switch (action) {
    case MpsPlan::Action::kNone:
      return;
    case MpsPlan::Action::kStart:
      // NOLINTNEXTLINE(bugprone-unchecked-optional-access): the plan starts what is wanted
      if (const auto started = host_->start(*wanted_, has_all_users_)) {
        run_ = Run::kStart;
        was_started_ = true;
      } else {
        take(now, Run::kStart, std::unexpected(started.error()));
      }
      return;
    case MpsPlan::Action::kAsk:
      return ask(Run::kServers, "get_server_list\n");
    case MpsPlan::Action::kQuit:
      return ask(Run::kQuit, "quit\n");
  }
}

void MpsLink::ask(Run run, const std::string& commands) {
  if (const auto asked = host_->ask(commands))
    run_ = run;
  else
    take(Time{}, run, std::unexpected(asked.error()));
}

void MpsLink::take(Time now, Run run, const Result<std::string>& answer) {
  if (!answer) {
    const std::string error = answer.error().message();
    if (run == Run::kStart) {
      plan_.start_failed(now);
      was_started_ = false;
    } else if (++silences_ < kSilencesTold) {
      return;
    }
    if (error != std::exchange(status_.error, error)) log_warning("MPS: {}", error);
    return;
  }
  if (run != Run::kStart) silences_ = 0;
  if (run != Run::kStart) status_.error.clear();
  if (run == Run::kServers) {
    servers_.clear();
    for (const pid_t pid : pids_in(*answer))
      if (const auto server = host_->bearer(pid)) servers_.push_back(*server);
    if (servers_.empty()) count_ = clients_.count();
  } else if (run == Run::kClients) {
    take_clients(*answer);
    servers_.pop_back();
  }
  if (run == Run::kServers || run == Run::kClients) ask_next_server();
}

void MpsLink::ask_next_server() {
  if (servers_.empty()) return;
  const std::string pid = std::to_string(servers_.back().pid);
  ask(Run::kClients, "get_server_status " + pid + "\nget_client_list " + pid + "\n");
}

void MpsLink::take_clients(const std::string& text) {
  std::vector<ProcessId> clients;
  // An error line names nobody, and a server with a fault its clients no more.
  bool is_whole = text.find("ACTIVE") != std::string::npos;
  for (const pid_t pid : pids_in(text)) {
    const auto client = host_->bearer(pid);
    if (client) clients.push_back(*client);
    is_whole &= client.has_value();
  }
  for (const ProcessId& client : clients) files_.keep(client);
  const bool has_fault = text.find("FAULT") != std::string::npos;
  clients_.update(servers_.back(), has_fault, is_whole && !has_fault, clients, describe_);
  count_ = clients_.count();
}

void MpsLink::tell(const MpsIncident& incident) {
  if (!incident.is_over) {
    ++status_.faults;
    log_error("MPS: {} (server {}); ended: {}; clients that it may end: {}",
              text_of(incident.cause), incident.server,
              incident.ended.empty() ? "none yet" : names_of(incident.ended),
              incident.alive.empty() ? "none" : names_of(incident.alive));
    return;
  }
  status_.last_fault = incident.ended.empty() ? "nobody ended" : names_of(incident.ended);
  log_error("MPS: over: {} (server {}); ended with it: {}", text_of(incident.cause),
            incident.server, status_.last_fault);
  if (!incident.alive.empty() && incident.cause != MpsIncident::Cause::kTogether)
    log_warning("MPS: still there, which keeps new programs from the server: {}",
                names_of(incident.alive));
}

std::string MpsLink::pipe_for(const ProcessId& process) {
  if (!wanted_ || !daemon_ || daemon_->gpus != *wanted_ || clients_.has_fault()) return "";
  if (silences_ >= kSilencesTold) return "";  // it would wait for the daemon in cuInit
  // A process's environment is read only where it matters: that waits for the lock of its memory.
  if (!daemon_->gpus.empty() && !may_be_client(daemon_->gpus, host_->visible(process.pid)))
    return "";
  is_expecting_ = true;
  return host_->pipe_directory();
}

void MpsLink::leave() {
  bool has_quit = false;
  Time now = MonotonicClock().now();
  for (const Time until = now + MpsHost::kPatience; daemon_ && now < until;
       now = MonotonicClock().now()) {
    if (run_ != Run::kNone) {
      if (const auto answer = host_->finished(now))
        take(now, std::exchange(run_, Run::kNone), *answer);
    } else if (!count_) {
      ask(Run::kServers, "get_server_list\n");
    } else if (*count_ > 0 || has_quit) {
      return;
    } else {
      has_quit = true;
      ask(Run::kQuit, "quit\n");
    }
    std::this_thread::sleep_for(5ms);
  }
}

}  // namespace gpushare
