// SPDX-License-Identifier: Apache-2.0
// Real processes on the simulated GPU, in real time: gpushare-sim, gpushared and CUDA programs.
// Each test has its own folder, sockets and control plane. Everything ends with the test.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "intercept/sim/wire/client.h"
#include "shmctl/base/fd.h"
#include "shmctl/plane/region.h"
#include "shmctl/plane/snapshot.h"
#include "shmctl/program/temp_folder.h"
#include "tests/support/started.h"

namespace gpushare::test {

// A stream connection to this socket; not open if it is refused. `flags`: of socket(2).
Fd connect_to(const std::string& path, int flags = 0);

// Arguments of `spin` for kernels of 2 ms without a pause. The length of a unit is the simulated
// GPU's: measuring it beside other programs takes long.
inline const std::vector<std::string> kSaturating{"--seconds", "1000", "--ns-per-unit", "129.293"};

class SystemRig {
 public:
  explicit SystemRig(const std::string& config, unsigned gpus = 1);
  ~SystemRig();

  void start_simulation();  // again, after it was ended
  // From now on the driver answers nothing that is asked of this GPU (kGreeting: nor whoever opens
  // it), or answers again what was asked meanwhile.
  void set_hang(uint32_t gpu, bool hangs = true);
  // Ends the simulation, and starts one with these options and an agent.
  void start_anew(std::vector<std::string> options) {
    simulation.reset();
    simulation_options = std::move(options);
    start_simulation();
    start_agent();
  }
  // Starts gpushared and waits for nothing: who asked it would wait for ever while the socket is
  // still that of an agent which has died. `more`: further arguments of gpushared.
  void begin_agent(std::vector<std::string> more = {});
  // Returns when the agent answers.
  void start_agent(std::vector<std::string> more = {});
  // The same after gpushared was killed, as systemd does it: again until one stays, because an
  // agent that is still ending holds the lock.
  void start_again();
  // Ends supervisor and agent so that neither can undo anything for the other.
  void kill_both();
  // What the region says of itself; an agent that runs does not look again. REQUIRES: there is one.
  void set_layout_version(uint32_t version) const;
  // A program, or anything else, by `gpushare run` with these options.
  std::unique_ptr<Child> run(std::vector<std::string> options, std::vector<std::string> command);
  std::unique_ptr<Child> start(const std::string& workload, std::vector<std::string> arguments);
  // The same with the shim preloaded.
  std::unique_ptr<Child> start_with_shim(const std::string& workload,
                                         std::vector<std::string> arguments);
  // A program of tests/attacks, which finds the agent's sockets in its environment.
  std::unique_ptr<Child> start_attack(const std::string& attack,
                                      std::vector<std::string> arguments = {});
  // `gpushare run OPTIONS -- PROGRAM`, a program of bin/; what it writes is in run.log.
  std::unique_ptr<Child> start_run(std::vector<std::string> options, const std::string& program,
                                   const std::vector<std::string>& arguments);
  // Runs a second gpushared, with these arguments beside the usual ones, and returns its exit code.
  int run_gpushared(std::vector<std::string> arguments);
  void write_config(const std::string& text);
  // Returns the answer to one request; empty when there is no agent.
  std::string ask(const std::string& request) const;
  // Returns true if the answer contains `text`.
  bool answers(const std::string& request, const std::string& text) const;

  // Empty when there is no region that can be read. For one thread.
  PlaneSnapshot snapshot() const;
  pid_t agent_pid() const { return static_cast<pid_t>(snapshot().agent.agent_pid); }
  // The record of a process on a GPU; its pid is 0 when there is none.
  ProcessRecord record(pid_t pid, uint32_t gpu = 0) const;
  // The record of a tenant; without a name when there is none.
  TenantRecord tenant(const std::string& name) const;
  // The part of `first` in what both had of a saturated GPU in the last second; 0 until it is
  // known.
  double share_beside(const Child& first, const Child& other, uint32_t gpu = 0) const;
  std::size_t frozen_groups() const;  // in the ledger
  std::string output(const std::string& of) const;

  std::unique_ptr<Child> simulation, gpushared;
  std::vector<std::string> agent_launcher;      // words before those of start_agent()
  std::vector<std::string> simulation_options;  // of the next start_simulation()

 private:
  const TempFolder temporary_;

 public:
  const std::string folder, socket, region;

 private:
  std::unique_ptr<Child> start_in(std::vector<std::string> environment, const std::string& program,
                                  std::vector<std::string> arguments);
  std::vector<std::string> usual(std::vector<std::string> more) const;
  std::string simulation_socket() const { return folder + "/sim.sock"; }

  const unsigned gpus_;
  std::unique_ptr<sim::Client> simulator_;  // of set_hang(); nullptr before the first one
  // Of snapshot(), which tests call every 2 ms: mapping the region anew each time costs more than
  // all else that they do. An agent may put another file under the name: this is what was mapped.
  mutable std::optional<ControlPlane> plane_;
  mutable ino_t plane_file_ = 0;
};

}  // namespace gpushare::test
