// SPDX-License-Identifier: Apache-2.0
// The ways in which a program's open files of the driver outlive it: in a child, in another program
// by exec, in a process that it sends them to.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tests/kernel/rm/context.h"

namespace gpushare {
namespace {

constexpr size_t kFiles = 2;

// What is sent beside the files, so that the other process can name what is in them.
struct Handles {
  uint32_t client, device, subdevice, group, channel, next;
};

// A message with room for the files. It refers to itself, so it stays where it is.
struct Message {
  explicit Message(Handles& handles) : data{&handles, sizeof handles} {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  iovec data;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int[kFiles]))]{};
  msghdr header{};
};

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) die("a path that is too long: " + path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

int open_socket() {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) die("no socket");
  return socket;
}

}  // namespace

void Context::go_on_in_child() {
  const pid_t child = ::fork();
  if (child < 0) die("no child");
  if (child > 0) ::_exit(0);
}

void Context::leave_open() {
  go_on_in_child();
  for (;;) ::pause();
}

void Context::exec_open() {
  for (const int file : {fd_, gpu_fd_})
    if (::fcntl(file, F_SETFD, 0) != 0) die("no file to keep open");
  ::execlp("sleep", "sleep", "1000", nullptr);
  die("no sleep");
}

void Context::send_to(const std::string& path) {
  Handles handles{client_, device_, subdevice_, group_, channels_.front(), next_};
  Message message(handles);
  cmsghdr* const files = CMSG_FIRSTHDR(&message.header);
  files->cmsg_level = SOL_SOCKET;
  files->cmsg_type = SCM_RIGHTS;
  files->cmsg_len = CMSG_LEN(sizeof(int[kFiles]));
  const int sent[kFiles]{fd_, gpu_fd_};
  std::memcpy(CMSG_DATA(files), sent, sizeof sent);
  sockaddr_un address = address_of(path);
  message.header.msg_name = &address;
  message.header.msg_namelen = sizeof address;
  const int socket = open_socket();
  await_file(path.c_str());
  if (::sendmsg(socket, &message.header, 0) != sizeof handles) die("nothing was sent");
  ::close(socket);
}

void Context::receive_at(const std::string& path) {
  const sockaddr_un address = address_of(path);
  const int socket = open_socket();
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    die("no socket " + path);
  Handles handles{};
  Message message(handles);
  if (::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC) != sizeof handles)
    die("nothing was received");
  const cmsghdr* const files = CMSG_FIRSTHDR(&message.header);
  if (files == nullptr || files->cmsg_len != CMSG_LEN(sizeof(int[kFiles])))
    die("no files were received");
  int received[kFiles];
  std::memcpy(received, CMSG_DATA(files), sizeof received);
  ::close(socket);
  fd_ = received[0], gpu_fd_ = received[1];
  client_ = handles.client, device_ = handles.device, subdevice_ = handles.subdevice;
  group_ = handles.group, next_ = handles.next;
  channels_ = {handles.channel};
}

}  // namespace gpushare
