// SPDX-License-Identifier: Apache-2.0
// rm_client does at the driver's ioctl boundary what a CUDA program does there, and then what it is
// told. It runs in the guest, statically linked.
//
//   rm_client WORD...      carries out the words in order, and prints one line for each that makes
//                          a driver call: the word and the driver's status ("alloc=64 0x51"), or
//                          "errno=N" if the ioctl itself failed
//
//   open         one context: client, device, subdevice, one compute group of 8 channels, on the
//                runlist, slice set once (what libcuda does at start); every call must succeed
//   root         the client alone, which a driver without a GPU can give
//   clients=N    makes and frees N more; prints one answer, the last bad one if there was any
//   busy idle    lets the first channel have work, or none
//   alloc=MIB alloc21=MIB heap=MIB range=MIB tiled=MIB xfer=MIB
//                video memory, by each of the calls that make it
//   dup          a second name for the newest memory           free     frees the newest memory
//   end          frees the client
//   slice=US schedule unschedule preempt interleave=N realtime
//                scheduling controls on its own group
//   foreign-slice=PID  sets the slice of another process's group, through its own file
//   slice-of-nobody=US sets the slice of its group, and names a client that there is not
//   foreign-dup=PID    a second name for the newest memory of a process that got the same words, so
//                that the handle is that of the own newest; it becomes the newest here
//   page-goes    puts the argument of the foreign-dup that follows on a page that goes when there
//   is
//                a file /tmp/goes, of which it says "gone", and comes back when there is /tmp/page
//   alloc-for=MS  lets a thread allocate 1 MiB, which the driver keeps for MS; does not wait for it
//   foreign-alloc-for=PID  lets a thread do foreign-alloc, whose refusal takes 1.5 s to come back
//   foreign-alloc=PID  asks for 1 MiB of video memory below another process's client
//   control=CMD  any control, with zeros for parameters, on its group, a channel or its subdevice
//   freeze=PID thaw=PID                                        another process's channels
//   heap-size    the call that looks like one for video memory and only tells how much there is
//   alloc-short=MIB  alloc, with a size of the parameters that ends before the memory's size
//   alloc-gpu=MIB free-gpu  on the GPU's file, where the driver refuses them without an answer
//   many=N       makes N clients beside it and keeps them, each with a device and 64 KiB of memory
//   compat       makes the calls from here on as 32-bit programs make them
//   race=US      asks for its slice while another thread turns the question into setting it to US,
//                and prints the slice that it has then
//   race-slice=US  makes 60 groups and sets each one's slice to 2048 us while another thread turns
//                that into US, and prints the longest slice that a group has then
//   race-away race-away-wrapped  preempts its group, 200 times, while another thread turns that
//                into a question, or into a call that the driver answers before RM
//   race-size=MIB race-heap=MIB
//                allocates 1 MiB, 100 times, while another thread turns the size into MIB; the
//                argument points to the size, or holds it
//   race-client=MIB  guesses the handle of a client that another thread is just making, makes 1 MiB
//                below it, frees it and makes MIB under the same handle, before the calls that made
//                the client and the first memory have returned
//   race-file=MIB  while a client is being made, a thread names it on another file, MIB are made
//                below it, and then that file is closed
//   linked=MIB   makes a client and memory on a control file that is registered to the own one, and
//                closes that file; prints what the driver said to the first that it refused
//   linked-child=MIB  a child does the same below this process's own client, and ends
//   preemption=MODE  how its kernels leave the GPU: 0 when they have ended, 1 by blocks, 2 at once
//   serialized=device serialized=group  makes one, and says that its parameters are serialized
//   schedule-dup puts a group on the runlist, and then once more by another name of it
//   display=HOW  memory by nvidia-drm: 0 what it makes for displays, 1 a dumb buffer, 2 what it
//                imports, and so keeps
//   uvm-map      has the newest memory mapped by nvidia-uvm, which numbers its mappings from 0
//   uvm-map-raced=MIB  the same, while another thread frees it and makes MIB under its handle
//   uvm-unmap=NUMBER uvm-close  ends a mapping, or all
//   export=PLACE puts the newest memory into a control file; 0 by the call for one object
//   export-many  fills all places of another one, the last with the newest memory
//   import=PLACE makes an object of what is there, which becomes the newest memory
//   export-raced the same, while another thread changes which file it is
//   unexport     closes that file
//   dma-buf      puts the newest memory into a DMA buffer
//   foreign-dma-buf=PID  the same with that of another process that got the same words
//   dma-buf-two  the newest two, by two calls
//   dma-buf-half the newest, and one that is not there
//   dma-buf-handle dma-buf-count dma-buf-client=PID
//                the one before the newest, while another thread turns it into the newest, adds the
//                newest, or names another process's client
//   dma-buf-swapped  the newest, by a call that is not one at first, again and again until RM
//                refuses it
//   dma-buf-close  closes all these buffers
//   go-on-in-child  ends, and a child does what follows
//   leave-open   ends, and a child that does nothing keeps the files open
//   exec-open    becomes `sleep`, and keeps the files open
//   send-to=SOCKET receive-at=SOCKET
//                sends the files and the handles to the process that receives them there, and goes
//                on with what it has received
//   short-lives=N  starts N processes, one after the other, each with threads that end in disorder,
//                and prints the ids of all threads
//   deep=CGROUP  goes into a cgroup so far below that one that its path does not fit into a page
//   procs-as=UID:FILE:PID  opens FILE as that user, and writes PID to it as root
//   churn=N      makes and frees memory N times, and ignores the answers
//   cost=KIND    the time of one call in ns, the least of many: version, control, alloc, free
//   (video
//                memory, twenty made and then freed), kept (made and never freed), dup, channel,
//                object (of a channel), preempt and refused (controls), other (not to the driver)
//   parallel=CALLERS:CALLS parallel-processes=CALLERS:CALLS
//                that many threads, or processes, each with a context of its own, make and free
//                video memory CALLS times at once; prints the times of a call in ns
//   echo=TEXT    prints TEXT                                   sleep=MS
//   until=FILE   waits until there is such a file
//   wait         waits until a signal ends it
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/kernel/rm/context.h"
#include "tests/kernel/rm/cost.h"
#include "tests/kernel/rm/parallel.h"

namespace gpushare {
namespace {

std::vector<uint8_t> bytes_of(uint64_t value, size_t size) {
  std::vector<uint8_t> bytes(size);
  std::memcpy(bytes.data(), &value, size);
  return bytes;
}

void report(std::string_view word, const Answer& answer) {
  if (answer.error != 0)
    std::printf("%.*s errno=%d\n", static_cast<int>(word.size()), word.data(), answer.error);
  else
    std::printf("%.*s 0x%x\n", static_cast<int>(word.size()), word.data(), answer.status);
}

// UID:FILE:PID
Answer write_procs_as(const std::string& text) {
  const size_t first = text.find(':'), second = text.find(':', first + 1);
  if (second == std::string::npos) die("procs-as=UID:FILE:PID");
  const std::string pid = text.substr(second + 1);
  if (::seteuid(static_cast<uid_t>(std::atoi(text.c_str()))) != 0) die("it is not root");
  const int file = ::open(text.substr(first + 1, second - first - 1).c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return {0, errno};
  if (::seteuid(0) != 0) die("it is not root any more");
  const bool is_written = ::write(file, pid.data(), pid.size()) == static_cast<ssize_t>(pid.size());
  const Answer answer{0, is_written ? 0 : errno};
  ::close(file);
  return answer;
}

void carry_out(Context& context, std::string_view word) {
  const size_t equals = word.find('=');
  const std::string_view verb = word.substr(0, equals);
  const std::string text(equals == std::string_view::npos ? "" : word.substr(equals + 1));
  const uint64_t number = std::strtoull(text.c_str(), nullptr, 0);

  if (verb == "open") return context.open(), report(word, {});
  if (verb == "root") return context.open_root(), report(word, {});
  if (verb == "clients") return report(word, context.make_clients(number));
  if (verb == "busy" || verb == "idle") return report(word, context.busy(verb == "busy"));
  if (verb == "dup") return report(word, context.dup());
  if (verb == "heap-size") return report(word, context.heap_size());
  if (verb == "free") return report(word, context.free_memory());
  if (verb == "free-two") return report(word, context.free_two());
  if (verb == "free-gpu") return report(word, context.free_memory_on_gpu());
  if (verb == "many") return report(word, context.make_many(number));
  if (verb == "compat") return (void)(is_compat = true);
  if (verb == "end") return report(word, context.free_client());
  if (verb == "freeze" || verb == "thaw")
    return report(word, context.disable(static_cast<int>(number), verb == "freeze"));
  if (verb == "slice")
    return report(word, context.group_control(GS_CTRL_SET_TIMESLICE, bytes_of(number, 8)));
  if (verb == "schedule" || verb == "unschedule")
    return report(word, context.group_control(GS_CTRL_GROUP_SCHEDULE, {verb == "schedule", 0}));
  if (verb == "preempt")
    return report(word, context.group_control(GS_CTRL_GROUP_PREEMPT, bytes_of(1, 8)));
  if (verb == "interleave")
    return report(word, context.group_control(GS_CTRL_SET_INTERLEAVE, bytes_of(number, 4)));
  if (verb == "realtime")
    return report(word, context.group_control(GS_CTRL_MAKE_REALTIME, bytes_of(1, 1)));
  if (verb == "foreign-slice") return report(word, context.foreign_slice(static_cast<int>(number)));
  if (verb == "slice-of-nobody") return report(word, context.slice_of_nobody(number));
  if (verb == "foreign-alloc") return report(word, context.foreign_alloc(static_cast<int>(number)));
  if (verb == "foreign-dup") return report(word, context.foreign_dup(static_cast<int>(number)));
  if (verb == "page-goes") return context.let_page_go();
  if (verb == "control") return report(word, context.any_control(static_cast<uint32_t>(number)));
  if (verb == "race")
    return (void)std::printf("race %llu\n", static_cast<unsigned long long>(context.race(number)));
  if (verb == "race-slice")
    return (void)std::printf("race-slice %llu\n",
                             static_cast<unsigned long long>(context.race_slice(number)));
  if (verb == "race-away" || verb == "race-away-wrapped")
    return context.race_away(verb == "race-away-wrapped");
  if (verb == "race-size" || verb == "race-heap")
    return context.race_size(number << 20, verb == "race-heap");
  if (verb == "alloc-for") return context.allocate_for(number);
  if (verb == "foreign-alloc-for") return context.foreign_alloc_for(static_cast<int>(number));
  if (verb == "race-file") return context.race_file(number << 20);
  if (verb == "race-client") return context.race_client(number << 20);
  if (verb == "linked") return report(word, context.linked(number << 20));
  if (verb == "linked-child") return report(word, context.linked_child(number << 20));
  if (verb == "preemption")
    return report(word, context.preemption_mode(static_cast<uint32_t>(number)));
  if (verb == "serialized") return report(word, context.serialized(text));
  if (verb == "schedule-dup") return report(word, context.schedule_duplicate());
  if (verb == "display") return report(word, context.display_memory(number));
  if (verb == "uvm-map") return report(word, context.uvm_map());
  if (verb == "uvm-map-raced") return report(word, context.uvm_map_raced(number << 20));
  if (verb == "uvm-unmap") return report(word, context.uvm_unmap(static_cast<uint32_t>(number)));
  if (verb == "uvm-close") return context.uvm_close();
  if (verb == "export") return report(word, context.export_memory(static_cast<uint32_t>(number)));
  if (verb == "import") return report(word, context.import_memory(static_cast<uint32_t>(number)));
  if (verb == "export-many") return report(word, context.export_many());
  if (verb == "export-raced") return report(word, context.export_raced());
  if (verb == "unexport") return context.close_carrier();
  if (verb == "dma-buf") return report(word, context.dma_buf());
  if (verb == "foreign-dma-buf")
    return report(word, context.foreign_dma_buf(static_cast<int>(number)));
  if (verb == "dma-buf-two") return report(word, context.dma_buf_of_two());
  if (verb == "dma-buf-half") return report(word, context.dma_buf_half());
  if (verb == "dma-buf-handle" || verb == "dma-buf-count" || verb == "dma-buf-client")
    return report(word, context.dma_buf_raced(verb.substr(8), static_cast<int>(number)));
  if (verb == "dma-buf-swapped") return report(word, context.dma_buf_swapped());
  if (verb == "dma-buf-close") return context.close_dma_bufs();
  if (verb == "go-on-in-child") return context.go_on_in_child();
  if (verb == "leave-open") return context.leave_open();
  if (verb == "exec-open") return context.exec_open();
  if (verb == "send-to") return context.send_to(text);
  if (verb == "receive-at") return context.receive_at(text);
  if (verb == "short-lives") return context.short_lives(number);
  if (verb == "deep") return context.go_deep(text);
  if (verb == "procs-as") return report(word, write_procs_as(text));
  if (verb == "churn") {
    for (uint64_t i = 0; i < number; ++i)
      if (context.allocate("alloc", 1 << 20).is_ok()) context.free_memory();
    return;
  }
  if (verb == "cost")
    return (void)std::printf("cost=%s %.1f\n", text.c_str(), cost_ns(context, text));
  if (verb == "parallel" || verb == "parallel-processes")
    return parallel_calls(text, verb == "parallel-processes");
  if (verb == "echo") return (void)std::printf("%s\n", text.c_str());
  if (verb == "sleep") return (void)::usleep(static_cast<useconds_t>(number * 1000));
  if (verb == "until") return await_file(text.c_str());
  if (verb == "wait")
    for (;;) ::pause();
  report(word, context.allocate(verb, number << 20));
}

}  // namespace
}  // namespace gpushare

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  gpushare::Context context;
  for (int i = 1; i < argc; ++i) gpushare::carry_out(context, argv[i]);
  return 0;
}
