// SPDX-License-Identifier: Apache-2.0
// ControlPlane: the mapping of the control plane's Region (layout.h) into this process. The agent
// and its supervisor make it (create), recovery opens it (open_existing), and the tools only read
// it (open_read_only). Any thread may open; the parts of the region have rules of their own.
//
// A region is made as a nameless file and linked under its name when it is complete: no process
// ever sees a half-made one, and a maker that dies leaves nothing behind. It lives until it is
// removed or the machine reboots, so that a new agent finds the ledger of the one that died.
//
// Its folder must belong to root or to this user, and only they may change what is in it; in a
// folder with the sticky bit, like /dev/shm, others can make files, but not take away ours. The
// folder of the usual region is root's alone, so that nobody can put something else there first.
//
// The file belongs to the user that runs the agent, normally root, and has mode 0644: the tools of
// every user may map it read-only. It holds no secrets: names, shares and pids of GPU programs that
// `ps` and nvidia-smi show too, and driver handles, which open nothing by themselves.
#pragma once

#include <memory>
#include <string>

#include "shmctl/base/error.h"
#include "shmctl/base/fd.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

inline constexpr const char* kDefaultRegionName = "/run/gpushare/region";
// Where versions up to 0.1 had it.
inline constexpr const char* kFormerRegionName = "/gpushare";

// An open is refused with invalid_argument, and a detail that says what was found, what was
// expected and what to do, for: another magic, layout version or size; a file shorter or longer
// than the region; anything that is not a regular file, symbolic links too; a file that belongs to
// another user, or that others may write, since they could also truncate it while it is mapped; a
// folder as said above, or one that is a symbolic link.
class ControlPlane {
 public:
  // `name` is the path of a file: each part is [A-Za-z0-9_.-]{1,200}, none is "." or "..", and the
  // folder should be in memory (tmpfs). One part alone, "/NAME", is the name of POSIX shared
  // memory: it stands for /dev/shm/NAME. All of these open for reading and writing, except
  // open_read_only(). create() opens the valid region of that name and keeps what is in it, or
  // makes an empty one; it also makes the last folder of the path, with mode 0755.
  static Result<ControlPlane> create(const std::string& name);
  // Error no_such_file_or_directory when there is no such region.
  static Result<ControlPlane> open_existing(const std::string& name);
  static Result<ControlPlane> open_read_only(const std::string& name);
  // The code of the error with which a region is refused for its content alone: it is damaged, or
  // of another build. Whoever made the file, and who else may write it, is as it should be.
  static constexpr std::errc kUnreadable = std::errc::bad_message;
  // Puts the region `with`, of the same folder, in the place of such a one, which is kept as
  // NAME.unread instead of what had that name; one of the two has the name at any instant. Returns
  // the path of the one that is kept. Error invalid_argument when it can be read; otherwise as
  // open.
  static Result<std::string> replace(const std::string& name, const std::string& with);
  // Copies what the ledger of such a region lists into that of `into`, whose ledger is empty. Error
  // kUnreadable: the file has no ledger, or not all of it, or one of another format; otherwise as
  // open. REQUIRES: whoever wrote it has died.
  static Result<> copy_ledger(const std::string& name, Region& into);
  // Removes the name; a process that has mapped the region keeps its mapping. It is no error when
  // there is no such region.
  static Result<> remove(const std::string& name);
  // Opens NAME.lock beside the region for reading and writing, and makes it, with mode 0600, if it
  // is not there. Makes the folder as create() does.
  static Result<Fd> open_lock_file(const std::string& name);

  ControlPlane(ControlPlane&&) noexcept;
  ControlPlane& operator=(ControlPlane&&) noexcept;
  ~ControlPlane();

  // Requires that it was not opened read-only; the mapping would fault.
  Region& region();
  const Region& region() const;
  const std::string& name() const { return name_; }

 private:
  struct Mapping;
  enum class Access { kReadOnly, kReadWrite };

  ControlPlane(std::string name, std::unique_ptr<Mapping> mapping);
  static Result<ControlPlane> open(const std::string& name, Access access);

  std::string name_;
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace gpushare
