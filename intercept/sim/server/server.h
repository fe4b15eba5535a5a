// SPDX-License-Identifier: Apache-2.0
// Server: a Model in real time behind a Unix socket (wire/protocol.h); gpushare-sim is its program.
// Virtual time is CLOCK_MONOTONIC: at each wake-up the model is first moved to now, so that all
// that happened before has its exact instant. The server sleeps until the model's next completion,
// the end of a control, or a message, and not for turns that no process waits for.
//
// As in the driver, every process may freeze and thaw every other and set its slice. Observers, but
// those of the same process, are told of it.
//
// A program's objects die with its connection, which lives as long as any process holds it: of one
// that ends while a child holds it observers are told at once, as by the probe. Freezes and slices
// outlive the agent's connection, as in the driver. Controls are carried out one after the other,
// as under the driver's lock, and answered when the driver would have answered. Where starts hold
// that lock (ControlCosts::start) questions wait for it as well. A GPU can be made to hang (kHang).
//
// One thread runs it; stop() may be called from any thread and from a signal handler.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "intercept/sim/model/model.h"
#include "intercept/sim/wire/connection.h"
#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"

namespace gpushare::sim {

class Server {
 public:
  struct Options {
    std::string socket = kDefaultSocket;
    std::vector<GpuModel> gpus{GpuModel{}};
    Parameters parameters{};
  };

  // Makes the socket, to which all users may connect, and the last folder of its path if that is
  // missing. A socket file that no process listens on is replaced. Error address_in_use when a
  // server runs there already.
  static Result<std::unique_ptr<Server>> listen(Options options);
  // Removes the socket file. The connections of programs are reset.
  ~Server();

  // Serves until stop() is called.
  Result<> run();
  void stop();

 private:
  struct Peer;
  // A freeze, thaw or slice on its way through the driver, or what waits for its lock.
  struct Control {
    int fd = -1;  // the connection that waits for the answer; -1 when it is gone
    uint64_t tag = 0;
    Nanos cost{};
    Time due{Time::max()};  // when it ends; set when it begins
    std::function<void(Peer*, uint64_t tag)> carry_out;
  };

  // A message that waits until its GPU answers again.
  struct Held {
    int fd = -1;  // the connection that it came from
    Header header{};
    std::vector<std::byte> body;
  };

  Server(Options options, Fd listener);
  Result<> set_up();

  void accept_all();
  void close(int fd);
  bool handle(Peer& peer, const Header& header, std::span<const std::byte> body);
  bool greet(Peer& peer, uint64_t tag, std::span<const std::byte> body);
  bool handle_gpu(Peer& peer, Kind kind, uint64_t tag, std::span<const std::byte> body);
  bool handle_program(Peer& peer, Kind kind, uint64_t tag, std::span<const std::byte> body);
  bool handle_control(Peer& peer, Kind kind, uint64_t tag, std::span<const std::byte> body);
  std::optional<uint32_t> asked_gpu(const Peer& peer, Kind kind,
                                    std::span<const std::byte> body) const;
  bool hold(const Peer& peer, const Header& header, std::span<const std::byte> body);
  bool set_hang(Peer& peer, uint64_t tag, std::span<const std::byte> body);
  bool enqueue_channels(Peer& peer, Kind kind, uint64_t tag, std::span<const std::byte> body);
  void make_context(Peer& peer, uint64_t tag, const CreateContext& request);
  void go_on_with_start(Peer& peer, uint64_t tag, const ContextReply& reply, uint32_t holds);
  void answer_group(Peer& peer, Kind kind, uint64_t tag, const GroupRef& group);
  void answer_switches(Peer& peer, uint64_t tag, uint32_t gpu);
  void answer_utilisation(Peer& peer, uint64_t tag, uint32_t gpu);
  void answer_attach(Peer& peer, uint64_t tag, pid_t pid);
  void enqueue(Control control);
  void under_lock(const Peer& peer, uint64_t tag, Nanos cost,
                  std::function<void(Peer*, uint64_t tag)> deed);
  void run_controls();
  // To all observers but those of the process `but`.
  void send_event(const DriverEvent& event, const ProcessId& but = {});
  void watch(const ProcessId& process);
  void look_for_copies(pid_t pid);
  void report_control(Peer& peer, decltype(DriverEvent::what) what);
  void flush_all();
  void arm_timer();

  const Options options_;
  const uint64_t load_;  // HelloReply::load: when it was started
  Fd listener_, epoll_, timer_, stop_;
  Model model_;
  std::map<int, std::unique_ptr<Peer>> peers_;     // by descriptor
  std::map<uint32_t, Peer*> programs_;             // by RM client
  std::deque<Control> controls_;                   // the first one is in progress
  std::map<int, std::pair<ProcessId, Fd>> lives_;  // of programs, by their pidfds
  std::set<uint32_t> hanging_;                     // GPUs that do not answer, and kGreeting
  std::deque<Held> held_;
  Time armed_;  // when the timer ends
};

}  // namespace gpushare::sim
