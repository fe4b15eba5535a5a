// SPDX-License-Identifier: Apache-2.0
// Stage runs the programs of one scenario and, when asked, an agent with its own control plane,
// socket and configuration in a temporary folder. Its destructor leaves nothing behind: it kills
// the programs, stops the agent and runs `gpushared --recover`.
//
// Any method throws Abort when the scenario cannot go on. Only main() catches it, so that scenarios
// are straight lines. All of it runs on the main thread.
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
  double seconds = 3;         // how long a run is measured
  bool is_simulated = false;  // the GPU is gpushare-sim
  std::string build;          // the folder that holds bin/ and lib/
  uint32_t simulated_gpus = 2;
};

// How fast programs are when each has the GPU to itself and there is no agent.
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
  // How many seconds a run settles before it begins to count.
  double settle_s() const { return 1.5; }

  // Waits for the condition. Returns false after `limit`.
  bool wait_until(const std::function<bool()>& condition, Nanos limit);
  void wait_until(Time instant);
  static Time now() { return std::chrono::steady_clock::now(); }

  // Starts a workload: by `gpushare run --tenant`, or directly if `tenant` is empty.
  Child& start(const std::string& workload, std::vector<std::string> arguments,
               const std::string& tenant = "");
  // Starts a service: a kernel of 100 us every `period_us`, `requests` times; in the tenant
  // `service` when an agent runs.
  Child& start_service(Time from, double period_us, double requests);
  // Adds a variable to the environment of every program that is started from here on.
  void set_variable(const std::string& name, const std::string& value);
  // Returns an instant by which that many programs, if started now, are ready to begin together.
  Time instant_for(size_t programs) const;
  // Waits until a program ends, which it must do in time and with status 0, and returns its last
  // line. Aborts when it began more than 30 ms after `began_at`.
  std::string finish(Child& program, std::optional<Time> began_at = std::nullopt);
  // Waits until the program has printed a line.
  void await_output(const Child& program);
  void kill_programs();

  // Runs another program of the build (or of an absolute path) to its end; returns its output.
  std::string run_tool(std::vector<std::string> words, int expected_status = 0);

  // Starts an agent with this configuration (TOML, as a rule the [tenant.x] tables). Returns when
  // the agent serves and enforces.
  void start_agent(const std::string& tenants);
  // Stops the agent by SIGTERM. Aborts when it leaves anything to recover.
  void stop_agent();
  void kill_agent_and_supervisor();
  void recover();
  bool has_agent() const { return supervisor_ != nullptr; }
  pid_t supervisor_pid() const { return supervisor_->pid(); }
  const std::string& socket() const { return socket_; }
  PlaneSnapshot plane();
  // Sends the agent one request, which it must accept; without a process if `pid` is 0.
  void tell(const std::string& op, pid_t pid, const std::string& tenant = "");

  // Opens a control of the GPUs of our own, beside the agent or without one.
  std::unique_ptr<Gpu> open_gpu() const;
  // Measures at the first call. Requires that neither an agent nor a program runs.
  const Solo& solo();
  std::vector<std::string> spin_arguments(double kernel_us);

 private:
  std::string program(const std::string& name) const;
  Child launch(std::vector<std::string> words, int end_signal = SIGKILL) const;
  void wait_for_agent();

  const Settings settings_;
  const Nanos limit_;  // until something that begins or ends by itself has done so
  Wait undisturbed_;   // for what has to be done when a wait was interrupted
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
