// SPDX-License-Identifier: Apache-2.0
// What goes over the simulated GPU's Unix stream socket. Fixed-width little-endian structs without
// padding; both ends run on one machine and are built from one tree, `kProtocolVersion` guards the
// rest.
//
// Every message is a Header and the body that its kind names, some followed by an array of `count`
// elements. A request is answered by one message of kind `kind | kReplyBit` and the same tag, which
// begins with a ReplyHead; kSubmit and kStop have no answer. Requests are answered in any order.
// The first message of a connection must be kHello. A malformed message ends the connection. Roles:
// a program makes contexts and submits work, and everything that it made dies with its connection;
// control is the agent's (freezes outlive it, as in the driver); an observer only listens.
#pragma once

#include <cstdint>

namespace gpushare::sim {

inline constexpr uint32_t kProtocolMagic = 0x4D495347;  // "GSIM"
inline constexpr uint32_t kProtocolVersion = 2;
inline constexpr uint32_t kMaxMessageBytes = 256 * 1024;
inline constexpr uint16_t kReplyBit = 0x8000;
inline constexpr char kDefaultSocket[] = "/run/gpushare/sim.sock";

enum class Kind : uint16_t {
  kHello = 1,     // Hello -> HelloReply
  kDescribe = 2,  // GpuRequest -> DescribeReply
  kMemory = 3,    // GpuRequest -> MemoryReply
  // role program
  kCreateContext = 10,  // CreateContext -> ContextReply
  kDestroyContext =
      11,            // ObjectRequest (context) -> ReplyHead; its unfinished work never completes
  kAllocate = 12,    // Allocate -> ObjectReply (memory handle); status ENOMEM when memory is out
  kFree = 13,        // ObjectRequest (memory handle) -> ReplyHead
  kSubmit = 14,      // Work; no answer, a Completion later
  kStop = 15,        // SequenceRequest; no answer; an endless kernel completes
  kQuery = 16,       // SequenceRequest -> ProgressReply
  kCompletion = 17,  // from the server: Completion
  // role control
  kFreeze = 30,    // ChannelsRequest + count x Channel -> ReplyHead, when the GPU has stopped them
  kThaw = 31,      // the same
  kSetSlice = 32,  // SliceRequest -> SliceReply
  kGetSlice = 33,  // SliceRequest -> SliceReply
  kGetGroup = 38,  // SliceRequest -> GroupReply
  kReadSwitches =
      34,  // GpuRequest -> SwitchesReply + count x Switch; each connection has its own place
  kUtilisation = 35,  // GpuRequest -> CountReply + count x Use
  kAttach = 36,       // PidRequest -> CountReply + count x Event
  kUsers = 37,        // GpuRequest (ignored) -> CountReply + count x int32_t
  // role observer
  kEvent = 50,  // from the server: Event
};

enum class Role : uint32_t { kProgram = 1, kControl = 2, kObserver = 3 };

struct Header {
  uint32_t bytes;  // of the whole message, this header included
  uint16_t kind;
  uint16_t reserved;  // 0
  uint64_t tag;       // chosen by the requester; 0 in kCompletion and kEvent
};

struct ReplyHead {
  uint32_t status;  // 0, or an errno value
  uint32_t reserved;
};

struct Hello {
  uint32_t magic;
  uint32_t version;
  Role role;
  uint32_t reserved;
};
struct HelloReply {  // status EPROTO: another version
  ReplyHead head;
  uint32_t version;
  uint32_t gpu_count;
};

struct GpuRequest {
  uint32_t gpu;
  uint32_t reserved;
};
struct DescribeReply {  // ENODEV: no such GPU
  ReplyHead head;
  uint32_t index;
  uint32_t instance;
  uint32_t sm_count;
  uint32_t reserved;
  uint64_t memory_bytes;
  char name[64];
  char uuid[48];
  char pci[16];
};
struct MemoryReply {
  ReplyHead head;
  uint64_t total_bytes;
  uint64_t free_bytes;
};

struct ObjectRequest {
  uint32_t object;
  uint32_t reserved;
};
struct ObjectReply {
  ReplyHead head;
  uint32_t object;
  uint32_t reserved;
};

struct CreateContext {
  uint32_t gpu;
  // 0: a context of its own. Else the context is a client of the MPS server of this number: all of
  // them run at the same time, and the switch log shows this number as their pid.
  uint32_t mps_server;
};
struct ContextReply {
  ReplyHead head;
  uint32_t context;      // names the context in this connection
  uint32_t client;       // RM client of the connection
  uint32_t group;        // its graphics channel group
  uint32_t channels[8];  // the channels of that group; queue q submits kernels to channels[q % 8]
  uint32_t reserved;
};

struct Allocate {
  uint32_t context;
  uint32_t reserved;
  uint64_t bytes;
};

enum class WorkKind : uint32_t {
  kKernel = 1,  // `amount`: ns that it takes alone
  kEndless,     // a kernel that runs until kStop; `amount` ignored
  kCopy,        // `amount`: bytes
  kMarker,      // completes when all before it in its queue have
  kWait,  // completes when the work with sequence `amount` has; at once if it is not under way
  kGate,  // completes on kStop; occupies its queue, not the GPU (a host function in a stream)
};
enum class Direction : uint32_t { kNone = 0, kHostToDevice, kDeviceToHost, kDeviceToDevice };

// One piece of work. Queues are the streams of a context: any number names one, it exists from its
// first use; work of one queue runs in order, of several at the same time.
struct Work {
  uint64_t sequence;  // chosen by the client, not 0, unique among its unfinished work
  uint32_t context;
  uint32_t queue;
  WorkKind kind;
  Direction direction;  // copies only
  uint64_t amount;
  uint32_t sm_ppm;  // kernels: part of the GPU's SMs that it can fill, 1..1,000,000
  uint32_t reserved;
};
struct Completion {
  uint64_t sequence;
  uint64_t started_ns;   // CLOCK_MONOTONIC, when it first ran, and when it ended: the model's
  uint64_t finished_ns;  // instants, a little before this notice can arrive
  uint32_t status;       // 0; EINVAL: malformed, nothing ran
  uint32_t reserved;
};

struct SequenceRequest {
  uint64_t sequence;
};
enum class WorkState : uint32_t {
  kUnknown = 0,
  kQueued,
  kRunning
};  // kUnknown: completed, or never seen
struct ProgressReply {
  ReplyHead head;
  WorkState state;
  uint32_t reserved;
  uint64_t executed_ns;  // in time that it would have taken alone
  uint64_t now_ns;
};

struct Channel {
  uint32_t client;
  uint32_t channel;
};
struct ChannelsRequest {
  uint32_t gpu;
  uint32_t count;
};
struct SliceRequest {
  int32_t pid;
  int32_t fd;
  uint64_t start_ticks;
  uint32_t client;
  uint32_t group;
  uint64_t slice_us;  // ignored by kGetSlice
};
struct GroupReply {
  ReplyHead head;
  uint64_t number;  // of the place on the runlist
};
struct SliceReply {
  ReplyHead head;
  uint64_t slice_us;
};

struct SwitchesReply {
  ReplyHead head;
  uint32_t count;
  uint32_t has_more;  // ask again at once
  uint64_t lost;
  uint64_t complete_until_ns;
};
struct Switch {
  uint64_t time_ns;
  int32_t pid;
  uint32_t context;
  uint32_t is_start;
  uint32_t reserved;
};

struct CountReply {
  ReplyHead head;
  uint32_t count;
  uint32_t reserved;
};
struct Use {
  int32_t pid;
  uint32_t sm_ppm;
};
struct PidRequest {
  int32_t pid;
  uint32_t reserved;
};

// A DriverEvent; codec.h translates. Which of the numbers mean what depends on `what`.
struct Event {
  uint64_t time_ns;
  uint64_t start_ticks;
  int32_t pid;
  uint32_t what;  // index into DriverEvent::what
  uint32_t words[4];
  uint64_t value;
  int32_t fd;
  uint32_t flag;
  char command[16];
};

static_assert(sizeof(Header) == 16 && sizeof(HelloReply) == 16 && sizeof(DescribeReply) == 160);
static_assert(sizeof(ContextReply) == 56 && sizeof(Work) == 40 && sizeof(Completion) == 32);
static_assert(sizeof(SliceRequest) == 32 && sizeof(SwitchesReply) == 32 && sizeof(Switch) == 24);
static_assert(sizeof(ProgressReply) == 32 && sizeof(Event) == 72);

}  // namespace gpushare::sim
