// SPDX-License-Identifier: Apache-2.0
// A thread that runs a call of the shim one machine instruction at a time, by the processor's trap
// flag, and stands still before one of them while other threads go on. Only the shim's own
// instructions count, which the program's table of symbols tells apart from those of the test, its
// driver and the libraries. SteppedChild (tests/shmctl/plane/) does the same to a process; a thread
// cannot trace another one of its own process, with which this one shares all that matters here.
//
// The driver ends a stretch of the call wherever it pauses (Stepping::Paused). A call that is to
// stand still runs at full speed up to the stretch with that instruction.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace gpushare::shim {

struct Point {
  uint32_t stretch = 0, instruction = 0;  // both counted from 0
};

class Stepping {
 public:
  // False in sanitized builds, of which a call has fifty times as many instructions, and where the
  // processor is another one.
  static bool is_possible();
  // From now on, and while no thread is stepped, only instructions in these functions count, of
  // which parts of the mangled names are given. None: in all of the shim.
  static void count_only_in(std::initializer_list<std::string_view> names);
  // Runs the call on this thread. Returns how many of the shim's instructions each stretch has.
  static std::vector<uint32_t> count(const std::function<void()>& call);
  // Runs the call on this thread; `meanwhile` is called before that instruction. Returns false if
  // the call did not come there.
  static bool stand_still(const std::function<void()>& call, Point where,
                          const std::function<void()>& meanwhile);

  // While it lives, the calling thread runs at full speed.
  class Paused {
   public:
    Paused();
    ~Paused();
    Paused(const Paused&) = delete;
    Paused& operator=(const Paused&) = delete;
  };
};

}  // namespace gpushare::shim
