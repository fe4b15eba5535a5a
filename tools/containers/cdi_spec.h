// SPDX-License-Identifier: Apache-2.0
// Tenants as devices of the Container Device Interface (CDI), which podman, containerd, CRI-O and
// Docker read from /etc/cdi: `podman run --device gpushare.io/tenant=research ...` puts a container
// into a tenant. A device is a hook that the runtime calls on the host, as root, when the
// container's first process is there and has not yet become the program. Pure.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "shmctl/base/error.h"

namespace gpushare {

inline constexpr const char* kCdiKind = "gpushare.io/tenant";

struct CdiOptions {
  std::string program{};     // the path of gpushare, which the hook starts
  std::string socket{};      // the agent's, if it is not the usual one; otherwise empty
  std::string shim{};        // the path of libgpushare.so to preload; empty: none
  std::string run_folder{};  // with `shim`: where the sockets are for which it asks
  bool is_required = false;  // a container does not start when it cannot be put into its tenant
};

// The file for these tenants, one device for each that has a name which CDI allows: it begins and
// ends with a letter or a digit. The names of the others are added to `left_out`.
std::string cdi_spec(const std::vector<std::string>& tenants, const CdiOptions& options,
                     std::vector<std::string>& left_out);

// The process in the state of a container, as the runtime writes it to a hook. The error is
// invalid_argument for anything else.
Result<pid_t> container_pid(std::string_view state);

}  // namespace gpushare
