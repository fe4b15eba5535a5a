// SPDX-License-Identifier: Apache-2.0
// Controls other processes' channels and channel groups: freeze, thaw, time slice (driver-facts
// sections 3 and 4). Without state: the enforcer counts and writes the ledger. Any
// thread may call, several at once; errors are those of Gpu (gpu.h).
//
// Every slice control takes a copy of the owner's descriptor and closes it at once: a copy that
// stays would keep the driver file, and with it all GPU memory, of a process that ended.
#pragma once

#include <span>

#include "intercept/gpu.h"
#include "intercept/nvrm/client.h"

namespace gpushare::nvrm {

// Each driver call takes at most 64 channels. When one fails, freeze_channels() thaws what the
// earlier ones froze; thaw_channels() continues and returns the first error, and skips channels
// that are gone.
Result<> freeze_channels(const RmClient& client, uint32_t gpu,
                         std::span<const ChannelRef> channels);
Result<> thaw_channels(const RmClient& client, uint32_t gpu, std::span<const ChannelRef> channels);

// Whether a call failed because the process, or its descriptor, is not there: then another process
// may have it.
bool may_have_moved(const Error& error);
// The slice of the group, and the hardware's number of it.
Result<> set_group_slice(const RmClient& client, const GroupRef& group, Micros slice);
Result<Micros> group_slice(const RmClient& client, const GroupRef& group);
Result<uint32_t> group_number(const RmClient& client, const GroupRef& group);

}  // namespace gpushare::nvrm
