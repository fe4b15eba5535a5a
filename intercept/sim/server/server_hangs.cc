// SPDX-License-Identifier: Apache-2.0
// The part of Server that makes GPUs hang: what is asked of one is held back, in its order, until
// it answers again.
#include <algorithm>
#include <cstring>
#include <utility>

#include "intercept/sim/server/server_peer.h"

namespace gpushare::sim {
namespace {

template <class T>
std::optional<T> begin_of(std::span<const std::byte> body) {
  T value;
  if (body.size() < sizeof value) return std::nullopt;
  std::memcpy(&value, body.data(), sizeof value);
  return value;
}

}  // namespace

// nullopt: it is asked of none.
std::optional<uint32_t> Server::asked_gpu(const Peer& peer, Kind kind,
                                          std::span<const std::byte> body) const {
  switch (kind) {
    case Kind::kHello: {
      const auto hello = begin_of<Hello>(body);
      if (!hello || hello->role == Role::kProgram) return std::nullopt;
      return kGreeting;
    }
    case Kind::kDescribe:
      if (peer.role != Role::kControl) return std::nullopt;
      [[fallthrough]];
    case Kind::kFreeze:
    case Kind::kThaw:
    case Kind::kReadSwitches:
    case Kind::kUtilisation: {
      static_assert(offsetof(ChannelsRequest, gpu) == offsetof(GpuRequest, gpu));
      const auto request = begin_of<GpuRequest>(body);
      return request ? std::optional(request->gpu) : std::nullopt;
    }
    case Kind::kSetSlice:
    case Kind::kGetSlice:
    case Kind::kGetGroup: {
      const auto request = begin_of<SliceRequest>(body);
      if (!request) return std::nullopt;
      return model_.gpu_of({{}, request->fd, request->client, request->group});
    }
    default:
      return std::nullopt;
  }
}

// Returns false when the message is to be handled now.
bool Server::hold(const Peer& peer, const Header& header, std::span<const std::byte> body) {
  if (hanging_.empty()) return false;
  const std::optional<uint32_t> gpu = asked_gpu(peer, Kind{header.kind}, body);
  if (!gpu || !hanging_.contains(*gpu)) return false;
  held_.push_back({peer.connection.fd(), header, {body.begin(), body.end()}});
  return true;
}

// What waits for another GPU is held again.
bool Server::set_hang(Peer& peer, uint64_t tag, std::span<const std::byte> body) {
  const auto request = begin_of<HangRequest>(body);
  if (!request || body.size() != sizeof *request) return false;
  if (request->hangs != 0)
    hanging_.insert(request->gpu);
  else
    hanging_.erase(request->gpu);
  peer.answer(Kind::kHang, tag, ReplyHead{});
  const int own = peer.connection.fd();
  for (const Held& held : std::exchange(held_, {})) {
    const auto waiting = peers_.find(held.fd);
    if (waiting == peers_.end()) continue;
    if (!handle(*waiting->second, held.header, held.body) && held.fd != own) close(held.fd);
  }
  return true;
}

}  // namespace gpushare::sim
