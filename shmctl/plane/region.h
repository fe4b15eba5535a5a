// SPDX-License-Identifier: Apache-2.0
// ControlPlane: the mapping of the control plane's Region (layout.h) into this process. Used by the
// agent and its supervisor (create), by recovery (open_existing) and by the tools (open_read_only).
//
// A region is published whole: it is made as a nameless file and linked under its name when it is
// complete, so nobody ever sees a half-made one, and a maker who dies leaves nothing behind. It
// lives until it is removed or the machine reboots; a new agent finds the ledger of the one that
// died.
//
// The file is root's (or whoever runs the agent) and 0644: every user's tools may map it read-only.
// Nothing in it is secret: names, shares and pids of GPU programs that `ps` and nvidia-smi show
// too, and driver handles, which any user can list and which open nothing by themselves. An open is
// refused, with what was found, what was expected and what to do, for: another magic, layout
// version or size; a file shorter than the region; anything but a regular file (symbolic links
// too); a file that somebody else owns or that others may write, since they could also truncate it
// under us.
//
// Threads: opening from any; the region's own rules are those of its parts.
#pragma once

#include <memory>
#include <string>

#include "shmctl/base/error.h"
#include "shmctl/plane/layout.h"

namespace gpushare {

inline constexpr const char* kDefaultRegionName = "/gpushare";

class ControlPlane {
 public:
  // `name`: '/' and then [A-Za-z0-9_.-]{1,200}, a POSIX shared memory name. All open for reading
  // and writing but open_read_only(). Opens the valid region of that name and keeps what is in it,
  // or makes an empty one.
  static Result<ControlPlane> create(const std::string& name);
  // Error no_such_file_or_directory when there is none.
  static Result<ControlPlane> open_existing(const std::string& name);
  static Result<ControlPlane> open_read_only(const std::string& name);
  // Takes the name away; who has it mapped keeps the mapping. No error when there is none.
  static Result<> remove(const std::string& name);

  ControlPlane(ControlPlane&&) noexcept;
  ControlPlane& operator=(ControlPlane&&) noexcept;
  ~ControlPlane();

  // Requires: not opened read-only (the mapping would fault).
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
