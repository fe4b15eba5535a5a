// SPDX-License-Identifier: Apache-2.0
// Claims: whether what a process was seen to do is true. The eBPF probe copies a call's argument
// after the driver has answered, from memory that another thread of the program can write at that
// moment. Copying it before the call as well would not help: the driver makes its own copy later.
// So a record may name anything, another program's channels for example, and RM (the driver's
// resource manager) is asked: it answers about a client only through the files that the client was
// made on, so a copy of the descriptor of the call tells whose it is (3 us a question on an H200,
// and 10 to 20 us for the copy, which is kept until rest()).
//
// Invariants:
//   1. A client has one owner: the first process whose descriptor RM confirms. Another one becomes
//      its owner only when that one has lost it. What a forked child, or whoever was sent the
//      descriptor, makes in the client is the owner's: RM runs it under the process that made the
//      client, whose pid the switch log has.
//   2. What names a client of another process, whose descriptor the caller lacks, is false.
//   3. What RM does not know any more, or describes otherwise, is dropped, and its process is to be
//      looked at again: it can harm nobody but itself by that.
// One thread, claim_line.h's.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "intercept/nvrm/driver.h"
#include "intercept/observer.h"

namespace gpushare::nvrm {

class Claims {
 public:
  // A process whose records were doubted so often within a second is believed nothing more in it.
  // What it runs on, its groups and channels, is counted apart from the rest: calls of the other
  // kinds without an end hide no context.
  static constexpr uint32_t kMostDoubts = 32;

  // `driver` outlives it.
  explicit Claims(Driver& driver) : driver_(driver) {}

  // Passes on what is true of `event`, which a call on descriptor `fd` of its process made, as an
  // event of the process that owns the client. What names no object is passed on as it is. A
  // control is passed on whoever owns its object.
  void examine(DriverEvent&& event, int fd, const Observer::Sink& sink);
  // After some events: passes on EventsLost for each process of which one was dropped, and closes
  // the copies of descriptors, which would keep the memory of a process that ends.
  void rest(const Observer::Sink& sink);

  const Observer::FalseClaims& false_claims() const { return false_; }

 private:
  struct Owner {
    ProcessId process;
    int fd = -1;
  };
  struct Object {
    uint32_t parent = 0, class_id = 0;
  };
  enum class Verdict {
    kTrue,
    kUnknown,  // RM does not know it so (any more), or the process is gone
    kForeign,  // true, and another process that shares the descriptor owns the client
    kFalse,
  };
  struct Doubts {
    Time since{};
    uint32_t of_contexts = 0, of_others = 0;  // see kMostDoubts
    bool is_to_tell = false;                  // EventsLost is due

    uint32_t& count(const DriverEvent& event);
  };
  using Name = std::tuple<ProcessId, uint32_t, uint32_t>;  // process, client, object

  Verdict judge(const DriverEvent& event, int fd);
  static void give_to(const Owner& owner, DriverEvent& event);
  Verdict owns(const ProcessId& process, uint32_t client, int fd);
  Verdict is_object(const ProcessId& process, uint32_t client, uint32_t object, int fd,
                    uint32_t class_id, uint32_t parent);
  bool is_freed(const ProcessId& process, const ObjectFreed& freed, int fd);
  // nullopt: RM does not know the object on this descriptor. Error: it cannot be asked.
  Result<std::optional<Object>> ask(const ProcessId& process, int fd, uint32_t client,
                                    uint32_t object);
  void forget(const ProcessId& process);
  bool is_worn_out(const DriverEvent& event);
  void doubt(const DriverEvent& event, Verdict verdict);

  Driver& driver_;
  std::map<uint32_t, Owner> owners_;  // by client
  std::map<std::pair<ProcessId, int>, Result<Fd>> copies_;
  std::map<ProcessId, Doubts> doubts_;
  std::set<Name> unfreed_;  // said to be freed, and RM still has them
  Observer::FalseClaims false_;
};

}  // namespace gpushare::nvrm
