// SPDX-License-Identifier: Apache-2.0
#include "tools/agent/client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tools/agent/agent_service.h"

namespace gpushare {
namespace {

// A status of a full control plane is about 2 MiB; more than this is not the agent.
constexpr size_t kLongestLine = 16 << 20;

// Says what most often is wrong and what to do about it, otherwise the system's own words.
Error connect_error(int code, const std::string& path) {
  constexpr const char* kStep = "connect to the agent";
  switch (code) {
    case ENOENT:
    case ECONNREFUSED:
      return {{}, kStep, "none runs at " + path + "; start it: " + how_to_start()};
    case EACCES:
    case EPERM:
      return {std::make_error_code(std::errc::permission_denied), kStep,
              path + ", for root and the group gpushare"};
    default:
      return {std::error_code(code, std::generic_category()), kStep, path};
  }
}

}  // namespace

Result<Client> Client::connect(const std::string& path) {
  constexpr const char* kStep = "connect to the agent";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty())
    return make_error(std::errc::invalid_argument, kStep,
                      "--region was given and no --socket, so it is not known where that agent "
                      "listens: give both");
  if (path.size() >= sizeof(address.sun_path))
    return make_error(std::errc::invalid_argument, kStep,
                      fmt::format("'{}' is not a socket's path (at most {} characters)", path,
                                  sizeof(address.sun_path) - 1));
  std::memcpy(address.sun_path, path.data(), path.size());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return errno_error(kStep);
  // A full backlog of a stuck agent would block the connect itself.
  const timeval limit{.tv_sec = std::chrono::ceil<std::chrono::seconds>(kAnswerTimeout).count(),
                      .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    return std::unexpected(connect_error(errno, path));
  return Client(std::move(socket));
}

Result<> Client::send(const Request& request) {
  const std::string line = encode(request);
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count =
        ::send(socket_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error("send to the agent");
    sent += static_cast<size_t>(count);
  }
  return {};
}

std::optional<std::string> Client::buffered_line() {
  const size_t end = received_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = received_.size();
    return std::nullopt;
  }
  std::string line = received_.substr(taken_, end - taken_);
  taken_ = searched_ = end + 1;
  return line;
}

Result<> Client::receive() {
  // Lines that were taken are dropped here, once for all of them, not one by one.
  received_.erase(0, taken_);
  searched_ -= taken_;
  taken_ = 0;
  char bytes[65536];
  const ssize_t count = ::recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (count < 0) return errno_error("read from the agent");
  if (count == 0)
    return make_error(std::errc::connection_reset, "read from the agent",
                      "it closed the connection");
  received_.append(bytes, static_cast<size_t>(count));
  if (received_.size() > kLongestLine && received_.find('\n', searched_) == std::string::npos)
    return make_error(std::errc::message_size, "read from the agent");
  return {};
}

Result<std::string> Client::read_line(Nanos timeout) {
  const Time deadline = MonotonicClock().now() + timeout;
  while (true) {
    if (auto line = buffered_line()) return *std::move(line);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(Nanos{}, deadline - MonotonicClock().now()));
    pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno != EINTR) return errno_error("wait for the agent");
    if (ready == 0)
      return make_error(std::errc::timed_out, "wait for the agent", "it does not answer");
    if (auto received = receive(); !received) return std::unexpected(received.error());
  }
}

Result<std::string> Client::ask(const Request& request) {
  const auto sent = send(request);
  auto answer = read_line(sent ? kAnswerTimeout : Nanos{});
  // An agent that has no room for the connection says so, and closes it before it is asked.
  return !sent && !answer ? std::unexpected(sent.error()) : std::move(answer);
}

Result<std::string> ask_when_there_is_room(const std::string& path, const Request& request,
                                           Nanos patience) {
  constexpr Nanos kPause = std::chrono::milliseconds(100);
  const Time until = MonotonicClock().now() + patience;
  while (true) {
    auto client = Client::connect(path);
    if (!client) return std::unexpected(client.error());
    auto answer = client->ask(request);
    const auto done = answer ? decode_done(*answer) : Result<>();
    const bool is_full = !done && done.error().code == std::errc::resource_unavailable_try_again;
    if (!is_full || MonotonicClock().now() + kPause >= until) return answer;
    std::this_thread::sleep_for(kPause);
  }
}

namespace {

template <class T>
Result<T> ask_once(const std::string& path, const Request& request,
                   Result<T> (*decode)(std::string_view)) {
  auto client = Client::connect(path);
  if (!client) return std::unexpected(client.error());
  auto line = client->ask(request);
  if (!line) return std::unexpected(line.error());
  return decode(*line);
}

}  // namespace

Result<> tell_agent(const std::string& path, const Request& request) {
  return ask_once(path, request, decode_done);
}

Result<bool> ask_on_gpu(const std::string& path, const Request& request) {
  return ask_once(path, request, decode_on_gpu);
}

Result<Hello> ask_hello(const std::string& path) {
  return ask_once(path, {.op = "hello"}, decode_hello);
}

Result<PlaneSnapshot> ask_status(const std::string& path) {
  return ask_once(path, {.op = "status"}, decode_status);
}

Result<std::vector<Finding>> ask_doctor(const std::string& path) {
  return ask_once(path, {.op = "doctor"}, decode_doctor);
}

}  // namespace gpushare
