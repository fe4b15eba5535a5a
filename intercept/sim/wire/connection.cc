// SPDX-License-Identifier: Apache-2.0
#include "intercept/sim/wire/connection.h"

#include <sys/socket.h>

#include <cstring>

namespace gpushare::sim {

bool Connection::receive(const Handler& handle) {
  std::byte chunk[32 * 1024];
  const ssize_t got = ::recv(fd(), chunk, sizeof chunk, MSG_DONTWAIT);
  if (got == 0) return false;
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  inbox_.insert(inbox_.end(), chunk, chunk + got);
  size_t at = 0;
  while (inbox_.size() - at >= sizeof(Header)) {
    Header header;
    std::memcpy(&header, inbox_.data() + at, sizeof header);
    if (header.bytes < sizeof header || header.bytes > kMaxMessageBytes || header.reserved != 0)
      return false;
    if (inbox_.size() - at < header.bytes) break;
    const auto body = std::span(inbox_).subspan(at + sizeof header, header.bytes - sizeof header);
    if (!handle(header, body)) return false;
    at += header.bytes;
  }
  inbox_.erase(inbox_.begin(), inbox_.begin() + static_cast<ptrdiff_t>(at));
  return true;
}

void Connection::queue(uint16_t kind, uint64_t tag, std::span<const std::byte> body,
                       std::span<const std::byte> extra) {
  const Header header{static_cast<uint32_t>(sizeof(Header) + body.size() + extra.size()), kind, 0,
                      tag};
  const auto head = std::as_bytes(std::span(&header, 1));
  outbox_.insert(outbox_.end(), head.begin(), head.end());
  outbox_.insert(outbox_.end(), body.begin(), body.end());
  outbox_.insert(outbox_.end(), extra.begin(), extra.end());
}

bool Connection::flush() {
  while (unsent() > 0) {
    const ssize_t sent =
        ::send(fd(), outbox_.data() + sent_, unsent(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      const bool is_full = errno == EAGAIN;
      outbox_.erase(outbox_.begin(), outbox_.begin() + static_cast<ptrdiff_t>(sent_));
      sent_ = 0;
      return is_full;
    }
    sent_ += static_cast<size_t>(sent);
  }
  outbox_.clear();
  sent_ = 0;
  return true;
}

}  // namespace gpushare::sim
