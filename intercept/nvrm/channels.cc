// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/channels.h"

#include <algorithm>
#include <optional>

namespace gpushare::nvrm {
namespace {

Result<> switch_channels(const RmClient& client, uint32_t gpu, std::span<const ChannelRef> channels,
                         bool disable) {
  gs_disable_channels params{};
  params.disable = disable ? 1 : 0;
  params.count = static_cast<uint32_t>(channels.size());
  for (size_t i = 0; i < channels.size(); ++i) {
    params.clients[i] = channels[i].client;
    params.channels[i] = channels[i].channel;
  }
  return client.subdevice_control(gpu, GS_CTRL_DISABLE_CHANNELS, params,
                                  disable ? "freeze channels" : "thaw channels");
}

bool is_gone(const Error& error) { return error.code == std::errc::no_such_process; }

template <class Params>
Result<> group_control(const RmClient& client, const GroupRef& group, uint32_t command,
                       Params& params, const char* step) {
  auto fd = client.driver().fetch(group.process, group.fd);
  if (!fd) return std::unexpected(fd.error());
  return rm_control(client.driver(), fd->get(), group.client, group.group, command, params, step);
}

}  // namespace

Result<> freeze_channels(const RmClient& client, uint32_t gpu,
                         std::span<const ChannelRef> channels) {
  for (size_t at = 0; at < channels.size(); at += GS_DISABLE_CHANNELS_MAX) {
    const size_t count = std::min<size_t>(GS_DISABLE_CHANNELS_MAX, channels.size() - at);
    if (auto done = switch_channels(client, gpu, channels.subspan(at, count), true); !done) {
      (void)thaw_channels(client, gpu, channels.first(at));
      return done;
    }
  }
  return {};
}

Result<> thaw_channels(const RmClient& client, uint32_t gpu, std::span<const ChannelRef> channels) {
  std::optional<Error> first_error;
  for (size_t at = 0; at < channels.size(); at += GS_DISABLE_CHANNELS_MAX) {
    const auto part =
        channels.subspan(at, std::min<size_t>(GS_DISABLE_CHANNELS_MAX, channels.size() - at));
    auto done = switch_channels(client, gpu, part, false);
    if (done) continue;
    // RM refuses the whole list when one channel of it is gone. Then each channel is thawed by
    // itself, so that the others do not stay frozen.
    for (const ChannelRef& channel : part) {
      auto single = switch_channels(client, gpu, std::span(&channel, 1), false);
      if (!single && !is_gone(single.error()) && !first_error) first_error = single.error();
    }
  }
  if (first_error) return std::unexpected(*first_error);
  return {};
}

Result<> set_group_slice(const RmClient& client, const GroupRef& group, Micros slice) {
  gs_timeslice params{static_cast<uint64_t>(slice.count())};
  return group_control(client, group, GS_CTRL_SET_TIMESLICE, params, "set time slice");
}

Result<Micros> group_slice(const RmClient& client, const GroupRef& group) {
  gs_timeslice params{};
  auto done = group_control(client, group, GS_CTRL_GET_TIMESLICE, params, "get time slice");
  if (!done) return std::unexpected(done.error());
  return Micros(params.us);
}

Result<uint32_t> group_number(const RmClient& client, const GroupRef& group) {
  gs_group_info params{};
  auto done = group_control(client, group, GS_CTRL_GROUP_INFO, params, "get channel group number");
  if (!done) return std::unexpected(done.error());
  return params.number;
}

}  // namespace gpushare::nvrm
