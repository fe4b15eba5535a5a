// SPDX-License-Identifier: Apache-2.0
// Control of other processes' channels and groups: freeze, thaw, time slice (driver-facts sections
// 3 and 4). Stateless; counting and write-ahead are the enforcer's.
//
// The owner's descriptor is taken anew for every slice control and closed at once: a copy that we
// kept would keep the driver file, and with it all GPU memory, of a process that ended.
#pragma once

#include <span>

#include "intercept/gpu.h"
#include "intercept/nvrm/client.h"

namespace gpushare::nvrm {

// At most 64 channels a driver call. freeze: a failure thaws what the earlier calls froze. thaw:
// goes on after a failure and returns the first; channels that are gone are passed over.
Result<> freeze_channels(const RmClient& client, uint32_t gpu,
                         std::span<const ChannelRef> channels);
Result<> thaw_channels(const RmClient& client, uint32_t gpu, std::span<const ChannelRef> channels);

Result<> set_group_slice(const RmClient& client, const GroupRef& group, Micros slice);
Result<Micros> group_slice(const RmClient& client, const GroupRef& group);
Result<uint32_t> group_number(const RmClient& client, const GroupRef& group);

}  // namespace gpushare::nvrm
