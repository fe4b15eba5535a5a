// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/server/server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "intercept/sim/server/copies.h"
#include "intercept/sim/server/server_peer.h"
#include "intercept/sim/wire/codec.h"
#include "shmctl/base/pidfd.h"
#include "shmctl/base/proc_stat.h"
#include "shmctl/base/unix_socket.h"

namespace gpushare::sim {
namespace {

// Bytes that wait for a peer's socket. Beyond them an observer loses events, and any other peer its
// connection.
constexpr size_t kMaxObserverBacklog = 4 << 20;
constexpr size_t kMaxProgramBacklog = 64 << 20;

Time monotonic_now() { return MonotonicClock().now(); }

Result<Fd> listen_on(const std::string& path) {
  if (const size_t slash = path.rfind('/'); slash != std::string::npos && slash > 0)
    ::mkdir(path.substr(0, slash).c_str(), 0755);  // on an error, bind() fails
  return listen_on_socket(path, 0666, "listen for programs");
}

}  // namespace

Server::Server(Options options, Fd listener)
    : options_(std::move(options)),
      load_(static_cast<uint64_t>(monotonic_now().time_since_epoch().count())),
      listener_(std::move(listener)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      model_(options_.gpus, options_.parameters, monotonic_now()) {
  model_.on_completion([this](uint32_t client, const Completion& completion) {
    if (const auto found = programs_.find(client); found != programs_.end())
      found->second->send(Kind::kCompletion, 0, completion);
  });
  model_.on_event([this](const DriverEvent& event) { send_event(event); });
}

Server::~Server() { ::unlink(options_.socket.c_str()); }

Result<std::unique_ptr<Server>> Server::listen(Options options) {
  auto listener = listen_on(options.socket);
  if (!listener) return std::unexpected(listener.error());
  std::unique_ptr<Server> server(new Server(std::move(options), std::move(*listener)));
  if (auto done = server->set_up(); !done) return std::unexpected(done.error());
  return server;
}

Result<> Server::set_up() {
  if (!epoll_.is_open() || !timer_.is_open() || !stop_.is_open())
    return errno_error("make event loop");
  for (const int fd : {listener_.get(), timer_.get(), stop_.get()}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return errno_error("make event loop");
  }
  return {};
}

void Server::stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
}

Result<> Server::run() {
  std::array<epoll_event, 64> events;
  while (true) {
    arm_timer();
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    if (count < 0 && errno != EINTR) return errno_error("wait for events");
    model_.advance_to(monotonic_now());
    run_controls();
    for (const epoll_event& event : std::span(events).first(std::max(count, 0))) {
      const int fd = event.data.fd;
      if (fd == stop_.get()) return {};
      if (fd == listener_.get()) {
        accept_all();
      } else if (fd == timer_.get()) {
        uint64_t expirations = 0;
        [[maybe_unused]] const ssize_t got = ::read(fd, &expirations, sizeof expirations);
      } else if (const auto life = lives_.find(fd); life != lives_.end()) {
        model_.end_process(life->second.first);
        lives_.erase(life);
      } else if (const auto found = peers_.find(fd); found != peers_.end()) {
        Peer& peer = *found->second;
        const bool is_alive = peer.connection.receive(
            [&](const Header& header, auto body) { return handle(peer, header, body); });
        if (!is_alive) close(fd);
      }
    }
    flush_all();
  }
}

void Server::arm_timer() {
  Time due = model_.quiet_until();
  if (!controls_.empty()) due = std::min(due, controls_.front().due);
  if (due == armed_) return;
  armed_ = due;
  itimerspec when{};
  if (due != Time::max()) {
    const int64_t ns = std::max<int64_t>(due.time_since_epoch().count(), 1);
    when.it_value = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

// --- connections ------------------------------------------------------------------------------

void Server::accept_all() {
  while (true) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_open()) return;
    const int fd = socket.get();
    auto identity = identify_peer(fd);
    if (!identity) continue;  // it has ended
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) continue;
    peers_.emplace(fd, std::make_unique<Peer>(std::move(socket), std::move(*identity)));
  }
}

void Server::close(int fd) {
  const auto found = peers_.find(fd);
  const std::unique_ptr<Peer> closed = std::move(found->second);
  peers_.erase(found);
  for (Control& control : controls_)
    if (control.fd == fd) control.fd = -1;
  std::erase_if(held_, [fd](const Held& held) { return held.fd == fd; });
  if (closed->is_announced && closed->client == 0)
    send_event({model_.now(), closed->identity.process, ProcessClosed{}}, closed->identity.process);
  if (closed->client != 0) {
    programs_.erase(closed->client);
    model_.close_client(closed->client);
  }
}

// Where no descriptor can be had its end is told with that of its connection.
void Server::watch(const ProcessId& process) {
  if (std::ranges::any_of(lives_, [&](const auto& one) { return one.second.first == process; }))
    return;
  auto life = open_pidfd(process.pid, process.start_ticks, "watch a program");
  if (!life) return;
  const int fd = life->get();
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return;
  lives_.emplace(fd, std::pair(process, std::move(*life)));
}

// In this process, of programs' connections.
void Server::look_for_copies(pid_t pid) {
  const auto stat = read_proc_stat(pid);
  if (!stat) return;
  const ProcessId process{pid, stat->start_ticks};
  std::optional<std::set<uint64_t>> held;
  for (const auto& [client, program] : programs_) {
    if (program->identity.process == process || program->inode == 0) continue;
    if (!held) held = sockets_of(pid);
    model_.inherit(client, process, held->contains(program->inode));
  }
}

void Server::flush_all() {
  std::vector<int> gone;
  for (auto& [fd, peer] : peers_) {
    Connection& connection = peer->connection;
    if (connection.unsent() > 0 || peer->is_write_watched) {
      bool is_alive = connection.flush();
      if (connection.unsent() > kMaxProgramBacklog) is_alive = false;
      if (!is_alive) {
        gone.push_back(fd);
        continue;
      }
    }
    if (const bool is_full = connection.unsent() > 0; is_full != peer->is_write_watched) {
      peer->is_write_watched = is_full;
      epoll_event event{.events = EPOLLIN | (is_full ? EPOLLOUT : 0U), .data = {.fd = fd}};
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
    }
  }
  for (const int fd : gone) close(fd);
}

void Server::send_event(const DriverEvent& event, const ProcessId& but) {
  const Event wire = encode(event);
  for (auto& [fd, peer] : peers_) {
    if (peer->role != Role::kObserver || peer->identity.process == but) continue;
    if (peer->connection.unsent() > kMaxObserverBacklog) {
      ++peer->events_lost;
      continue;
    }
    if (peer->events_lost > 0) {
      DriverEvent lost;
      lost.time = event.time;
      lost.what = EventsLost{std::exchange(peer->events_lost, 0)};
      peer->send(Kind::kEvent, 0, encode(lost));
    }
    peer->send(Kind::kEvent, 0, wire);
  }
}

// What the probe would see of a control.
void Server::report_control(Peer& peer, decltype(DriverEvent::what) what) {
  const ProcessId& process = peer.identity.process;
  if (!std::exchange(peer.is_announced, true))
    send_event({model_.now(), process, peer.identity.about}, process);
  send_event({model_.now(), process, std::move(what)}, process);
}

// --- controls ---------------------------------------------------------------------------------

// Where no start holds the lock what costs nothing is done at once. `deed` is given nullptr when
// who asked is gone.
void Server::under_lock(const Peer& peer, uint64_t tag, Nanos cost,
                        std::function<void(Peer*, uint64_t tag)> deed) {
  Control control{
      .fd = peer.connection.fd(), .tag = tag, .cost = cost, .carry_out = std::move(deed)};
  if (cost > 0ns || options_.parameters.control.start > 0ns) return enqueue(std::move(control));
  const auto waiting = peers_.find(control.fd);
  control.carry_out(waiting == peers_.end() ? nullptr : waiting->second.get(), tag);
}

void Server::enqueue(Control control) {
  controls_.push_back(std::move(control));
  if (controls_.size() == 1) controls_.front().due = model_.now() + controls_.front().cost;
}

void Server::run_controls() {
  while (!controls_.empty() && controls_.front().due <= model_.now()) {
    const Control control = std::move(controls_.front());
    controls_.pop_front();
    if (!controls_.empty()) controls_.front().due = control.due + controls_.front().cost;
    const auto waiting = peers_.find(control.fd);
    control.carry_out(waiting == peers_.end() ? nullptr : waiting->second.get(), control.tag);
  }
}

}  // namespace gpushare::sim
