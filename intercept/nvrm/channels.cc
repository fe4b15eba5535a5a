// SPDX-License-Identifier: Apache-2.0
#include "intercept/nvrm/channels.h"

#include <algorithm>
#include <optional>

namespace gpushare::nvrm {

bool may_have_moved(const Error& error) {
  return is_gone(error) || error.code == std::errc::bad_file_descriptor ||
         error.code == std::errc::no_such_device;
}

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

// Where a descriptor is looked for that is not under its number any more: a few are asked, so that
// a process with very many does not take long.
constexpr size_t kMostDescriptors = 1024, kMostAsked = 16;

// A program may move its descriptor to another number, and set its slices on it: then they are set
// there. One that only another process holds is not found.
template <class Params>
Result<> group_control(const RmClient& client, const GroupRef& group, uint32_t command,
                       Params& params, const char* step) {
  Driver& driver = client.driver();
  const auto ask = [&](int number) -> Result<> {
    const auto fd = driver.fetch(group.process, number);
    if (!fd) return std::unexpected(fd.error());
    return rm_control(driver, fd->get(), group.client, group.group, command, params, step);
  };
  const Result<> done = ask(group.fd);
  if (done || !may_have_moved(done.error())) return done;
  const auto others = driver.control_fds(group.process.pid, kMostDescriptors);
  if (!others) return done;
  size_t asked = 0;
  for (const int number : *others) {
    if (number == group.fd || ++asked > kMostAsked) continue;
    const Result<> there = ask(number);
    if (there || !may_have_moved(there.error())) return there;
  }
  return done;
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
