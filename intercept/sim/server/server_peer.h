// SPDX-License-Identifier: Apache-2.0
// The server's state of one connection; only server*.cc include it.
#pragma once

#include <map>

#include "intercept/sim/server/peer.h"
#include "intercept/sim/server/server.h"

namespace gpushare::sim {

struct Server::Peer {
  Peer(Fd socket, sim::Peer who) : connection(std::move(socket)), identity(std::move(who)) {}

  template <class T>
  void send(Kind kind, uint64_t tag, const T& body) {
    connection.queue(static_cast<uint16_t>(kind), tag, std::as_bytes(std::span(&body, 1)));
  }
  template <class T>
  void answer(Kind kind, uint64_t tag, const T& body, std::span<const std::byte> extra = {}) {
    connection.queue(static_cast<uint16_t>(kind) | kReplyBit, tag,
                     std::as_bytes(std::span(&body, 1)), extra);
  }

  Connection connection;
  sim::Peer identity;
  std::optional<Role> role;             // its kHello sets it
  uint32_t client = 0;                  // the RM client of a program
  uint64_t inode = 0;                   // of its own end of the connection
  std::map<uint32_t, uint64_t> places;  // of a control: its place in each GPU's switch log
  bool is_announced = false;            // of a control: observers know its process
  uint64_t events_lost = 0;             // of an observer: events lost since the last EventsLost
  bool is_write_watched = false;
};

}  // namespace gpushare::sim
