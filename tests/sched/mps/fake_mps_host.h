// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sched/mps/link.h"

namespace gpushare::test {

// A machine whose state the test sets. An answer comes with the next finished(); a silent daemon
// gives none.
class FakeMpsHost final : public MpsHost {
 public:
  static constexpr ProcessId kDaemon{50, 1};

  const std::string& pipe_directory() const override { return pipe; }
  bool has_program() const override { return is_installed; }
  std::optional<MpsDaemon> daemon() override { return running; }
  Result<> start(const std::string& gpus, bool has_all_users) override {
    starts.push_back(gpus + (has_all_users ? " all" : " one"));
    if (refusal) return std::unexpected(*refusal);
    if (does_start) running = MpsDaemon{kDaemon, gpus};
    answer_ = "";
    return {};
  }
  Result<> ask(const std::string& commands) override {
    asked += commands;
    answer_.reset();
    if (is_silent) {
      answer_ = make_error(std::errc::timed_out, "ask MPS", "");
    } else if (commands == "get_server_list\n") {
      answer_ = clients.empty() && !has_server ? "" : "60\n";
    } else if (commands.starts_with("get_server_status 60\nget_client_list 60\n")) {
      std::string text = has_fault ? "FAULT\n" : "ACTIVE\n";
      for (const ProcessId& client : clients) text += std::to_string(client.pid) + separator;
      answer_ = text;
    } else if (commands == "quit\n") {
      running.reset();
      answer_ = "";
    }
    return {};
  }
  std::optional<Result<std::string>> finished(Time) override {
    return std::exchange(answer_, std::nullopt);
  }
  std::optional<std::string> visible(pid_t) override { return visible_devices; }
  std::optional<ProcessId> bearer(pid_t pid) override { return ProcessId{pid, 1}; }
  bool has_ended(const ProcessId& process) override { return ended.contains(process); }
  Result<std::vector<Fd>> copy_memory_files(const ProcessId& process) override {
    copied.insert(process);
    return std::vector<Fd>{};
  }
  void close_aside(std::vector<Fd>) override {}

  const std::string pipe = "/run/test/mps";
  bool is_installed = true, does_start = true, is_silent = false, has_fault = false,
       has_server = false;
  std::optional<Error> refusal;
  std::optional<MpsDaemon> running;
  std::set<ProcessId> clients, ended, copied;
  std::optional<std::string> visible_devices;
  std::vector<std::string> starts;
  std::string asked, separator = "\n";

 private:
  std::optional<Result<std::string>> answer_;
};

}  // namespace gpushare::test
