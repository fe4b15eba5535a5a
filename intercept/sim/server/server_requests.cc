// SPDX-License-Identifier: Apache-2.0
// The answers of Server: one function for each group of messages. Each returns false when the
// connection must end.
#include <unistd.h>

#include <cmath>
#include <cstring>

#include "intercept/sim/server/copies.h"
#include "intercept/sim/server/server_peer.h"
#include "intercept/sim/wire/codec.h"

namespace gpushare::sim {
namespace {

constexpr size_t kSwitchesPerReply = 8192;
constexpr uint32_t kSetTimeslice = 0xA06C0103;  // NVA06C_CTRL_CMD_SET_TIMESLICE

template <class T>
bool parse(std::span<const std::byte> body, T& request) {
  if (body.size() != sizeof request) return false;
  std::memcpy(&request, body.data(), sizeof request);
  return true;
}

// A list of names of objects of clients.
template <class T>
std::optional<std::pair<ChannelsRequest, std::vector<T>>> parse_channels(
    std::span<const std::byte> body) {
  static_assert(sizeof(T) == sizeof(sim::Channel));
  ChannelsRequest request;
  if (body.size() < sizeof request || !parse(body.first(sizeof request), request) ||
      body.size() != sizeof request + request.count * sizeof(T))
    return std::nullopt;
  std::vector<T> list(request.count);
  if (!list.empty())
    std::memcpy(list.data(), body.data() + sizeof request, body.size() - sizeof request);
  return std::pair(request, std::move(list));
}

template <class T>
ReplyHead head_of(const Result<T>& result) {
  return {result ? 0 : static_cast<uint32_t>(result.error().code.value()), 0};
}

ReplyHead failed(int error) { return {static_cast<uint32_t>(error), 0}; }

template <class T>
void answer_list(auto& peer, Kind kind, uint64_t tag, const std::vector<T>& list, Nanos cost = {}) {
  constexpr size_t kMost = (kMaxMessageBytes - sizeof(Header) - sizeof(CountReply)) / sizeof(T);
  CountReply reply{};
  if (list.size() > kMost) {
    reply.head = failed(EOVERFLOW);
    return peer.answer(kind, tag, reply);
  }
  reply.count = static_cast<uint32_t>(list.size());
  reply.cost_us = static_cast<uint32_t>(cost / 1us);
  peer.answer(kind, tag, reply, std::as_bytes(std::span(list)));
}

}  // namespace

bool Server::handle(Peer& peer, const Header& header, std::span<const std::byte> body) {
  const Kind kind{header.kind};
  if (hold(peer, header, body)) return true;
  if (kind == Kind::kHello) return !peer.role && greet(peer, header.tag, body);
  if (!peer.role) return false;
  if (kind == Kind::kDescribe || kind == Kind::kMemory)
    return handle_gpu(peer, kind, header.tag, body);
  switch (*peer.role) {
    case Role::kProgram:
      return handle_program(peer, kind, header.tag, body);
    case Role::kControl:
      return handle_control(peer, kind, header.tag, body);
    case Role::kObserver:
      return false;
  }
  return false;
}

bool Server::greet(Peer& peer, uint64_t tag, std::span<const std::byte> body) {
  Hello hello;
  if (!parse(body, hello) || hello.magic != kProtocolMagic) return false;
  HelloReply reply{{}, kProtocolVersion, static_cast<uint32_t>(model_.gpus().size()), load_};
  const bool is_role = hello.role >= Role::kProgram && hello.role <= Role::kObserver;
  const uid_t uid = *peer.identity.about.uid;  // of a peer it is known
  if (hello.version != kProtocolVersion || !is_role) {
    reply.head = failed(EPROTO);
  } else if (hello.role == Role::kObserver && uid != 0 && uid != ::geteuid()) {
    reply.head = failed(EPERM);
  } else {
    peer.role = hello.role;
  }
  peer.answer(Kind::kHello, tag, reply);
  if (peer.role == Role::kProgram) {
    peer.client = model_.open_client(peer.identity.process, peer.identity.about);
    programs_[peer.client] = &peer;
    peer.inode = hello.inode;
    watch(peer.identity.process);
  }
  if (peer.role == Role::kControl)
    for (const GpuInfo& gpu : model_.gpus())
      peer.places[gpu.index] = model_.switch_log(gpu.index).end();
  return true;
}

bool Server::handle_gpu(Peer& peer, Kind kind, uint64_t tag, std::span<const std::byte> body) {
  GpuRequest request;
  if (!parse(body, request)) return false;
  const bool exists = request.gpu < model_.gpus().size();
  if (kind == Kind::kMemory) {
    MemoryReply reply{};
    if (exists) {
      reply.total_bytes = model_.gpus()[request.gpu].memory_bytes;
      reply.free_bytes = model_.free_memory(request.gpu);
    } else {
      reply.head = failed(ENODEV);
    }
    peer.answer(kind, tag, reply);
    return true;
  }
  DescribeReply reply{};
  if (exists) {
    const GpuInfo& gpu = model_.gpus()[request.gpu];
    reply.index = gpu.index;
    reply.instance = gpu.instance;
    reply.sm_count = gpu.sm_count;
    reply.memory_bytes = gpu.memory_bytes;
    gpu.name.copy(reply.name, sizeof reply.name - 1);
    gpu.uuid.copy(reply.uuid, sizeof reply.uuid - 1);
    gpu.pci.copy(reply.pci, sizeof reply.pci - 1);
  } else {
    reply.head = failed(ENODEV);
  }
  peer.answer(kind, tag, reply);
  return true;
}

// --- programs ---------------------------------------------------------------------------------

bool Server::handle_program(Peer& peer, Kind kind, uint64_t tag, std::span<const std::byte> body) {
  ObjectRequest object;
  SequenceRequest sequence;
  switch (kind) {
    case Kind::kSubmit: {
      Work work;
      if (!parse(body, work)) return false;
      model_.submit(peer.client, work);
      return true;
    }
    case Kind::kStop:
      if (!parse(body, sequence)) return false;
      model_.stop(peer.client, sequence.sequence);
      return true;
    case Kind::kQuery:
      if (!parse(body, sequence)) return false;
      peer.answer(kind, tag, model_.progress(peer.client, sequence.sequence));
      return true;
    case Kind::kCreateContext: {
      CreateContext request;
      if (!parse(body, request)) return false;
      make_context(peer, tag, request);
      return true;
    }
    case Kind::kDestroyContext:
      if (!parse(body, object)) return false;
      under_lock(peer, tag, model_.parameters().control.teardown,
                 [this, context = object.object](Peer* waiting, uint64_t to) {
                   if (waiting == nullptr) return;  // it is gone, and what it had with it
                   waiting->answer(Kind::kDestroyContext, to,
                                   head_of(model_.destroy_context(waiting->client, context)));
                 });
      return true;
    case Kind::kAllocate: {
      Allocate request;
      if (!parse(body, request)) return false;
      const auto memory = model_.allocate(peer.client, request.context, request.bytes);
      peer.answer(kind, tag, ObjectReply{head_of(memory), memory.value_or(0), 0});
      return true;
    }
    case Kind::kFree:
      if (!parse(body, object)) return false;
      peer.answer(kind, tag, head_of(model_.free(peer.client, object.object)));
      return true;
    default:
      return false;
  }
}

// The context is there when it has had the lock once.
void Server::make_context(Peer& peer, uint64_t tag, const CreateContext& request) {
  const ControlCosts& costs = options_.parameters.control;
  under_lock(peer, tag, costs.start, [this, request, &costs](Peer* waiting, uint64_t to) {
    if (waiting == nullptr) return;
    const auto made = model_.create_context(waiting->client, request.gpu, request.mps_server,
                                            request.is_hidden != 0);
    ContextReply reply = made ? *made : ContextReply{};
    reply.head = head_of(made);
    go_on_with_start(*waiting, to, reply, made && costs.start > 0ns ? costs.start_holds - 1 : 0);
  });
}

// Each time that a start has the lock it does something on the GPU, and is resident from then on.
void Server::go_on_with_start(Peer& peer, uint64_t tag, const ContextReply& reply, uint32_t holds) {
  if (holds == 0) return peer.answer(Kind::kCreateContext, tag, reply);
  model_.touch(peer.client, reply.context);
  under_lock(peer, tag, options_.parameters.control.start,
             [this, reply, holds](Peer* waiting, uint64_t to) {
               if (waiting != nullptr) go_on_with_start(*waiting, to, reply, holds - 1);
             });
}

// --- control ----------------------------------------------------------------------------------

bool Server::handle_control(Peer& peer, Kind kind, uint64_t tag, std::span<const std::byte> body) {
  GpuRequest gpu;
  switch (kind) {
    case Kind::kFreeze:
    case Kind::kThaw:
      return enqueue_channels(peer, kind, tag, body);
    case Kind::kSetSlice:
    case Kind::kGetGroup:
    case Kind::kGetSlice: {
      SliceRequest request;
      if (!parse(body, request)) return false;
      const GroupRef group{
          {request.pid, request.start_ticks}, request.fd, request.client, request.group};
      if (kind != Kind::kSetSlice) {
        under_lock(peer, tag, {}, [this, kind, group](Peer* waiting, uint64_t to) {
          if (waiting != nullptr) answer_group(*waiting, kind, to, group);
        });
        return true;
      }
      const Micros slice(static_cast<int64_t>(std::min<uint64_t>(request.slice_us, 1'000'000'000)));
      enqueue({.fd = peer.connection.fd(),
               .tag = tag,
               .cost = model_.parameters().control.set_slice,
               .carry_out = [this, group, slice](Peer* waiting, uint64_t to) {
                 const SliceReply reply{head_of(model_.set_slice(group, slice)),
                                        static_cast<uint64_t>(slice.count())};
                 if (waiting == nullptr) return;
                 const ControlMade made{group.client, group.group, kSetTimeslice, reply.head.status,
                                        reply.slice_us};
                 report_control(*waiting, made);
                 waiting->answer(Kind::kSetSlice, to, reply);
               }});
      return true;
    }
    case Kind::kReadSwitches:
    case Kind::kUtilisation: {
      if (!parse(body, gpu)) return false;
      const auto answer =
          kind == Kind::kReadSwitches ? &Server::answer_switches : &Server::answer_utilisation;
      under_lock(peer, tag, {}, [this, answer, index = gpu.gpu](Peer* waiting, uint64_t to) {
        if (waiting != nullptr) (this->*answer)(*waiting, to, index);
      });
      return true;
    }
    case Kind::kAttach: {
      PidRequest request;
      if (!parse(body, request)) return false;
      under_lock(peer, tag, {}, [this, pid = request.pid](Peer* waiting, uint64_t to) {
        if (waiting != nullptr) answer_attach(*waiting, to, pid);
      });
      return true;
    }
    case Kind::kUsers:
      if (!parse(body, gpu)) return false;
      for (const pid_t pid : all_pids()) look_for_copies(pid);
      answer_list(peer, kind, tag, model_.users());
      return true;
    case Kind::kMissing: {
      auto objects = parse_channels<ObjectRef>(body);
      if (!objects) return false;
      under_lock(peer, tag, {},
                 [this, asked = std::move(objects->second)](Peer* waiting, uint64_t to) {
                   if (waiting != nullptr)
                     answer_list(*waiting, Kind::kMissing, to, model_.missing(asked));
                 });
      return true;
    }
    case Kind::kHang:
      return set_hang(peer, tag, body);
    default:
      return false;
  }
}

bool Server::enqueue_channels(Peer& peer, Kind kind, uint64_t tag,
                              std::span<const std::byte> body) {
  auto parsed = parse_channels<ChannelRef>(body);
  if (!parsed) return false;
  const uint32_t on_gpu = parsed->first.gpu;
  std::vector<ChannelRef>& channels = parsed->second;
  const bool is_freeze = kind == Kind::kFreeze;
  // A channel that is gone is found out before the GPU is asked, which is what costs.
  const size_t there = model_.count_there(on_gpu, channels);
  Nanos cost{};
  if (is_freeze && there == channels.size()) cost = model_.freeze_cost(channels);
  if (!is_freeze && there > 0) cost = model_.thaw_cost(channels);
  enqueue({.fd = peer.connection.fd(),
           .tag = tag,
           .cost = cost,
           .carry_out = [this, kind, is_freeze, gpu = on_gpu, channels = std::move(channels)](
                            Peer* waiting, uint64_t to) {
             const auto done =
                 is_freeze ? model_.freeze(gpu, channels) : model_.thaw(gpu, channels);
             if (waiting == nullptr) return;
             for (const ChannelRef& channel : channels)
               report_control(*waiting, ChannelsSwitched{is_freeze, {channel}});
             waiting->answer(kind, to, head_of(done));
           }});
  return true;
}

void Server::answer_group(Peer& peer, Kind kind, uint64_t tag, const GroupRef& group) {
  if (kind == Kind::kGetGroup) {
    const auto number = model_.hardware_group(group);
    return peer.answer(kind, tag, GroupReply{head_of(number), number.value_or(0)});
  }
  const auto slice = model_.slice(group);
  const auto us = static_cast<uint64_t>(slice ? slice->count() : 0);
  peer.answer(kind, tag, SliceReply{head_of(slice), us});
}

void Server::answer_utilisation(Peer& peer, uint64_t tag, uint32_t gpu) {
  std::vector<Use> uses;
  if (gpu < model_.gpus().size()) {
    const UtilisationSample sample = model_.utilisation(gpu);
    const uint32_t busy_ppm =
        sample.busy < 0 ? kNotTold : static_cast<uint32_t>(std::lround(sample.busy * 1e6));
    uses.push_back({0, busy_ppm, stored_ns(sample.from), stored_ns(sample.until)});
    for (const Utilisation& each : sample.of)
      uses.push_back({each.pid, static_cast<uint32_t>(each.sm_fraction * 1e6), 0, 0});
  }
  answer_list(peer, Kind::kUtilisation, tag, uses);
}

void Server::answer_attach(Peer& peer, uint64_t tag, pid_t pid) {
  if (model_.has_ended(pid)) {
    CountReply reply{};
    reply.head = failed(ESRCH);
    return peer.answer(Kind::kAttach, tag, reply);
  }
  look_for_copies(pid);
  std::vector<Event> events;
  for (const DriverEvent& event : model_.attach(pid)) events.push_back(encode(event));
  answer_list(peer, Kind::kAttach, tag, events, model_.parameters().control.attach);
}

void Server::answer_switches(Peer& peer, uint64_t tag, uint32_t gpu) {
  SwitchesReply reply{};
  if (gpu >= model_.gpus().size()) {
    reply.head = failed(ENODEV);
    return peer.answer(Kind::kReadSwitches, tag, reply);
  }
  const SwitchLog& log = model_.switch_log(gpu);
  uint64_t& place = peer.places[gpu];
  const SwitchBatch batch = log.read(place, kSwitchesPerReply, model_.now());
  std::vector<Switch> records;
  records.reserve(batch.records.size());
  for (const SwitchRecord& record : batch.records)
    records.push_back({stored_ns(record.time), record.pid, record.context, record.is_start, 0});
  reply.count = static_cast<uint32_t>(records.size());
  reply.has_more = place < log.end();
  reply.lost = batch.lost;
  reply.complete_until_ns = stored_ns(batch.complete_until);
  peer.answer(Kind::kReadSwitches, tag, reply, std::as_bytes(std::span(records)));
}

}  // namespace gpushare::sim
