// SPDX-License-Identifier: Apache-2.0
// How a process gets its slot: it connects to this socket and says nothing; the kernel says who it
// is. It receives one byte with a descriptor (SCM_RIGHTS), a sealed memfd of kShimSlotBytes, and
// the connection is closed; or it is closed without, when the agent wants nothing of it.
#pragma once

namespace gpushare {

inline constexpr const char* kShimSocketPath = "/run/gpushare/shim.sock";
inline constexpr const char* kShimSocketVariable = "GPUSHARE_SHIM_SOCKET";

}  // namespace gpushare
