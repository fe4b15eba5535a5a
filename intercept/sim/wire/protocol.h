// SPDX-License-Identifier: Apache-2.0
// The messages on the Unix stream socket of gpushare-sim: fixed-width little-endian structs without
// padding. Both ends run on one machine; `kProtocolVersion` guards against ends of two builds.
//
// A message is a Header and the body of its kind, for some kinds followed by `count` elements. The
// answer to a request has the kind `kind | kReplyBit` and the same tag and begins with a ReplyHead;
// answers come in any order, and kSubmit and kStop have none. The first message of a connection
// must be kHello. A malformed message ends the connection. There are three roles: a program makes
// contexts and submits work, and what it made dies with its connection; control is for the agent,
// whose freezes outlive its connection as in the driver; an observer only receives events.
#pragma once

#include <cstdint>

namespace gpushare::sim {

inline constexpr uint32_t kProtocolMagic = 0x4D495347;  // "GSIM"
inline constexpr uint32_t kProtocolVersion = 10;
inline constexpr uint32_t kMaxMessageBytes = 256 * 1024;
inline constexpr uint16_t kReplyBit = 0x8000;
inline constexpr char kDefaultSocket[] = "/run/gpushare/sim.sock";

enum class Kind : uint16_t {
  kHello = 1,     // Hello -> HelloReply
  kDescribe = 2,  // GpuRequest -> DescribeReply
  kMemory = 3,    // GpuRequest -> MemoryReply
  // For the role program.
  kCreateContext = 10,   // CreateContext -> ContextReply
  kDestroyContext = 11,  // ObjectRequest (context) -> ReplyHead; its work never completes
  kAllocate = 12,        // Allocate -> ObjectReply (memory handle); ENOMEM when memory is full
  kFree = 13,            // ObjectRequest (memory handle) -> ReplyHead
  kSubmit = 14,          // Work; it has no answer, and a Completion comes later
  kStop = 15,            // SequenceRequest; it has no answer, and an endless kernel completes
  kQuery = 16,           // SequenceRequest -> ProgressReply
  kCompletion = 17,      // from the server: Completion
  // For the role control.
  kFreeze = 30,        // ChannelsRequest + count x Channel -> ReplyHead, when the GPU stopped them
  kThaw = 31,          // the same
  kSetSlice = 32,      // SliceRequest -> SliceReply
  kGetSlice = 33,      // SliceRequest -> SliceReply
  kReadSwitches = 34,  // GpuRequest -> SwitchesReply + count x Switch, from this connection's place
  kUtilisation = 35,   // GpuRequest -> CountReply + count x Use
  kAttach = 36,        // PidRequest -> CountReply + count x Event
  kUsers = 37,         // GpuRequest (ignored) -> CountReply + count x int32_t
  kGetGroup = 38,      // SliceRequest -> GroupReply
  kHang = 39,          // HangRequest -> ReplyHead; for tests
  kMissing = 40,       // ChannelsRequest (no GPU) + count x Channel, which may be any object of the
                       // client -> CountReply + count x Channel, those that are not there
  // For the role observer.
  kEvent = 50,  // from the server: Event
};

enum class Role : uint32_t { kProgram = 1, kControl = 2, kObserver = 3 };

struct Header {
  uint32_t bytes;     // length of the whole message, with this header
  uint16_t kind;      // Kind
  uint16_t reserved;  // 0
  uint64_t tag;       // the requester chooses it; 0 in kCompletion and kEvent
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
  uint64_t inode;  // of the sender's socket, by which its copies in other processes are found
};
struct HelloReply {  // status EPROTO when the versions differ
  ReplyHead head;
  uint32_t version;
  uint32_t gpu_count;
  uint64_t load;  // another number for each server, which makes its handles anew
};

struct GpuRequest {
  uint32_t gpu;
  uint32_t reserved;
};
struct DescribeReply {  // status ENODEV when there is no such GPU
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

// From the answer on nothing is answered that is asked of this GPU by the role control, nor what it
// is (kDescribe, by which the agent opens it), until it is told to answer again: then all that
// waits is done, in its order. What a connection asked for that has ended meanwhile is not done,
// like a system call that a signal has ended.
struct HangRequest {
  uint32_t gpu;    // or kGreeting
  uint32_t hangs;  // 0 or 1
};
// Instead of a GPU: the kHello of controls and observers waits, as when the driver is opened and
// does not answer.
inline constexpr uint32_t kGreeting = 0xFFFFFFFF;

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
  // 0 makes a context of its own. Otherwise the context is a client of the MPS server with this
  // number: all its clients run at the same time, and the switch log shows the number as their pid.
  uint32_t mps_server;
  // Not 0: no event tells of it, as of one whose program rewrites the arguments of its calls before
  // the probe reads them.
  uint32_t is_hidden;
  uint32_t reserved;
};
struct ContextReply {
  ReplyHead head;
  uint32_t context;      // the name of the context in this connection
  uint32_t client;       // the RM client of the connection
  uint32_t group;        // the context's graphics channel group
  uint32_t channels[8];  // that group's channels; kernels of queue q go to channels[q % 8]
  uint32_t reserved;
};

struct Allocate {
  uint32_t context;
  uint32_t reserved;
  uint64_t bytes;
};

enum class WorkKind : uint32_t {
  kKernel = 1,  // takes `amount` ns when it is alone
  kEndless,     // a kernel that runs until kStop; `amount` is ignored
  kCopy,        // copies `amount` bytes
  kMarker,      // completes when everything before it in its queue has
  kWait,        // completes with the work of sequence `amount`; at once when there is none
  kGate,        // completes on kStop and occupies its queue only (a host function in a stream)
  kCollective,  // a kernel of `amount` ns that gets on only while all its peers run, too
};
inline constexpr uint32_t kMaxRanks = 1024;
enum class Direction : uint32_t { kNone = 0, kHostToDevice, kDeviceToHost, kDeviceToDevice };

// One piece of work. Queues are the streams of a context: any number names one, which exists from
// its first use. Work of one queue runs in order, work of several queues at the same time.
struct Work {
  uint64_t sequence;  // the client chooses it: not 0, unique among its unfinished work
  uint32_t context;
  uint32_t queue;
  WorkKind kind;
  Direction direction;  // for copies only
  uint64_t amount;      // see WorkKind
  uint32_t sm_ppm;      // for kernels: the part of the SMs that it can fill, 1 to 1,000,000
  // Of kCollective: how many ranks its communicator has, 2 to kMaxRanks, and the communicator's
  // number in the machine, not 0. The first collective that a context submits to a communicator
  // meets the first ones of the other contexts, the second one the second ones, and so on.
  uint32_t ranks;
  uint64_t communicator;
  // For kernels in a part of the GPU: its groups of SMs, and which part of all SMs these are, in
  // ppm. 0: the whole GPU.
  uint64_t sm_groups = 0;
  uint64_t set_ppm = 0;
};
struct Completion {
  uint64_t sequence;
  uint64_t started_ns;   // when it first ran, CLOCK_MONOTONIC
  uint64_t finished_ns;  // when it ended in the model, a little before this message can arrive
  uint32_t status;       // 0, or EINVAL for malformed work, which did not run
  uint32_t reserved;
};

struct SequenceRequest {
  uint64_t sequence;
};
// kUnknown means that it completed, or was never submitted.
enum class WorkState : uint32_t { kUnknown = 0, kQueued, kRunning };
struct ProgressReply {
  ReplyHead head;
  WorkState state;
  uint32_t reserved;
  uint64_t executed_ns;  // progress, as the time that it would have taken alone
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
  uint64_t slice_us;  // for kSetSlice only
};
struct GroupReply {
  ReplyHead head;
  uint64_t number;  // the number of its place on the runlist
};
struct SliceReply {
  ReplyHead head;
  uint64_t slice_us;
};

struct SwitchesReply {
  ReplyHead head;
  uint32_t count;
  uint32_t has_more;  // 1 when there are more records to ask for
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
  uint32_t cost_us;  // of kAttach: how long the driver would take to find them
};
inline constexpr uint32_t kNotTold = UINT32_MAX;
struct Use {  // the first one, of pid 0, tells of what time all are, and of the GPU
  int32_t pid;
  uint32_t sm_ppm;
  uint64_t from_ns, until_ns;
};
struct PidRequest {
  int32_t pid;
  uint32_t reserved;
};

// A DriverEvent, which codec.h translates. The meaning of the numbers depends on `what`.
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

static_assert(sizeof(Header) == 16 && sizeof(HelloReply) == 24 && sizeof(DescribeReply) == 160);
static_assert(sizeof(ContextReply) == 56 && sizeof(Work) == 64 && sizeof(Completion) == 32);
static_assert(sizeof(SliceRequest) == 32 && sizeof(SwitchesReply) == 32 && sizeof(Switch) == 24);
static_assert(sizeof(ProgressReply) == 32 && sizeof(Event) == 72);

}  // namespace gpushare::sim
