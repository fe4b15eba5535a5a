// SPDX-License-Identifier: Apache-2.0
// Stage: where one scenario plays. It starts programs and, when asked, an agent with its own
// control plane, socket and configuration in a temporary folder; it waits for conditions, and at
// its end nothing of it is left: programs killed, the agent stopped, `gpushared --recover` run.
//
// What a scenario cannot go on without and does not get is thrown as Abort, from any of these
// methods, and caught in main() alone: scenarios are straight lines, and the destructor cleans up.
// One thread.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "intercept/gpu.h"
#include "shmctl/plane/region.h"
#include "shmctl/plane/snapshot.h"
#include "shmctl/program/child.h"
#include "shmctl/program/temp_folder.h"
#include "tests/workloads/common/output.h"

namespace gpushare::bench {

struct Abort {
  Error error;
};
[[noreturn]] void give_up(const char* step, std::string detail);

struct Settings {
  double seconds = 3;         // of measurement
  bool is_simulated = false;  // the GPU is gpushare-sim
  std::string build;          // the folder that holds bin/ and lib/
  uint32_t simulated_gpus = 2;
};

// How fast programs are that have a GPU to themselves, without an agent.
struct Solo {
  double spin_units_per_ms = 0, ns_per_unit = 0, endless_turns_per_ms = 0;
};

class Stage {
 public:
  // `wait` ends every wait of the stage with an Abort when it is interrupted.
  Stage(const Settings& settings, Wait& wait);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const Settings& settings() const { return settings_; }
  // Before it begins to count, a run takes so long to settle.
  double settle_s() const { return 1.5; }

  // Waits for the condition. Returns false after `limit`.
  bool wait_until(const std::function<bool()>& condition, Nanos limit);
  void wait_until(Time instant);
  static Time now() { return std::chrono::steady_clock::now(); }

  // Starts a workload: by `gpushare run --tenant`, or directly if `tenant` is empty.
  Child& start(const std::string& workload, std::vector<std::string> arguments,
               const std::string& tenant = "");
  // More variables in the environment of every program that is started from here on.
  void set_variable(const std::string& name, const std::string& value);
  // An instant by which that many programs, started now, are ready to begin together.
  Time instant_for(size_t programs) const;
  // The last line of a program that must end well by then. Aborts when it did not begin at
  // `began_at` sharp.
  std::string finish(Child& program, std::optional<Time> began_at = std::nullopt);
  // Waits until it has printed a line.
  void await_output(const Child& program);
  void kill_programs();

  // Another program of the build (or an absolute path), to its end: its output.
  std::string run_tool(std::vector<std::string> words, int expected_status = 0);

  // `tenants`: TOML, the [tenant.x] tables. Returns when the agent serves and enforces.
  void start_agent(const std::string& tenants);
  // SIGTERM; Aborts when anything is left to recover.
  void stop_agent();
  void kill_agent_and_supervisor();
  void recover();
  bool has_agent() const { return supervisor_ != nullptr; }
  pid_t supervisor_pid() const { return supervisor_->pid(); }
  const std::string& socket() const { return socket_; }
  PlaneSnapshot plane();
  // One request to the agent, which must accept it. `pid` 0: none.
  void tell(const std::string& op, pid_t pid, const std::string& tenant = "");

  // Our own control of the GPUs, beside or without the agent.
  std::unique_ptr<Gpu> open_gpu() const;
  // Measured at the first call. Requires: no agent, no program.
  const Solo& solo();
  std::vector<std::string> spin_arguments(double kernel_us);

 private:
  std::string program(const std::string& name) const;
  Child launch(std::vector<std::string> words, int end_signal = SIGKILL) const;
  void wait_for_agent();

  const Settings settings_;
  Wait undisturbed_;  // for what has to be done when a wait was interrupted
  Wait* wait_;
  const TempFolder folder_;
  std::string region_, socket_, simulation_;
  std::vector<std::string> variables_;
  std::unique_ptr<Child> simulator_, supervisor_;
  std::list<Child> programs_;
  std::optional<ControlPlane> plane_;
};

inline Nanos seconds(double s) { return Nanos{static_cast<int64_t>(s * 1e9)}; }
std::string ns_text(Time instant);  // for --start-at

}  // namespace gpushare::bench
