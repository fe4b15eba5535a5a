// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stepped.h"

#include <elf.h>
#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "tests/support/sanitized.h"

extern "C" const char __ehdr_start;  // where the linker has put the program

namespace gpushare::shim {

#if defined(__x86_64__) && !GS_IS_SANITIZED

namespace {

constexpr uint64_t kTrapFlag = 0x100;
constexpr uint32_t kNever = UINT32_MAX;

// What is below the stack pointer may be in use.
void trap() {
  asm volatile(
      "lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::
          : "memory", "cc");
}
void trap_no_more() {
  asm volatile(
      "lea -128(%%rsp), %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::
          : "memory", "cc");
}

struct Range {
  uint64_t begin, end;
};

bool is_of_shim(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  return has("8gpushare4shim7Streams") || has("8gpushare4shim9StreamUse") ||
         has("8gpushare4shim10Milestones") || has("8gpushare4shim10Partitions") || has("4CallC1") ||
         has("4CallC2") || has("4CallD1") || has("4CallD2") || has("4Call3end") ||
         has("9StepsTest7captureE");
}

// The shim's functions in this program that are to count, in the order of their addresses.
std::vector<Range> functions(std::initializer_list<std::string_view> wanted) {
  const auto is_given = [&](std::string_view name) {
    return wanted.size() == 0 || std::ranges::any_of(wanted, [&](const auto& part) {
             return name.find(part) != name.npos;
           });
  };
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string program(std::istreambuf_iterator<char>(file), {});
  const auto* const head = reinterpret_cast<const Elf64_Ehdr*>(program.data());
  const auto* const sections = reinterpret_cast<const Elf64_Shdr*>(program.data() + head->e_shoff);
  const auto base = reinterpret_cast<uint64_t>(&__ehdr_start);
  std::vector<Range> found;
  for (int i = 0; i < head->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char* const names = program.data() + sections[sections[i].sh_link].sh_offset;
    const auto* const symbols =
        reinterpret_cast<const Elf64_Sym*>(program.data() + sections[i].sh_offset);
    for (uint64_t j = 0; j < sections[i].sh_size / sizeof *symbols; ++j)
      if (ELF64_ST_TYPE(symbols[j].st_info) == STT_FUNC && symbols[j].st_size > 0 &&
          is_of_shim(names + symbols[j].st_name) && is_given(names + symbols[j].st_name))
        found.push_back(
            {base + symbols[j].st_value, base + symbols[j].st_value + symbols[j].st_size});
  }
  std::ranges::sort(found, {}, &Range::begin);
  return found;
}

std::vector<Range>& shim_code() {
  static std::vector<Range> code = functions({});
  return code;
}

bool is_shim(uint64_t address) {
  const auto& code = shim_code();
  const auto after = std::ranges::upper_bound(code, address, {}, &Range::begin);
  return after != code.begin() && address < std::prev(after)->end;
}

// Of the thread that is stepped.
struct State {
  bool is_on, is_counting;
  int pauses;
  Point now, where;
  std::vector<uint32_t>* counts;
  const std::function<void()>* meanwhile;  // null: it has stood still
};
constinit thread_local State state{};

void on_trap(int, siginfo_t*, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (!is_shim(static_cast<uint64_t>(registers[REG_RIP]))) return;
  if (state.now.instruction++ != state.where.instruction || state.is_counting) return;
  registers[REG_EFL] &= ~static_cast<greg_t>(kTrapFlag);
  const int saved = errno;
  (*std::exchange(state.meanwhile, nullptr))();
  errno = saved;
}

void begin_stretch() {
  state.now.instruction = 0;
  if (state.is_counting || (state.now.stretch == state.where.stretch && state.meanwhile != nullptr))
    trap();
}

void end_stretch() {
  trap_no_more();
  if (state.is_counting) state.counts->push_back(state.now.instruction);
  ++state.now.stretch;
}

void run(const std::function<void()>& call, const State& as) {
  static const bool is_ready = [] {
    shim_code();
    struct sigaction action{};
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGTRAP, &action, nullptr) == 0;
  }();
  if (!is_ready) return;
  state = as;
  state.is_on = true;
  begin_stretch();
  call();
  end_stretch();
  state.is_on = false;
}

}  // namespace

bool Stepping::is_possible() { return !shim_code().empty(); }

void Stepping::count_only_in(std::initializer_list<std::string_view> names) {
  shim_code() = functions(names);
}

std::vector<uint32_t> Stepping::count(const std::function<void()>& call) {
  std::vector<uint32_t> counts;
  run(call, {.is_on = false,
             .is_counting = true,
             .pauses = 0,
             .now = {},
             .where = {kNever, kNever},
             .counts = &counts,
             .meanwhile = nullptr});
  return counts;
}

bool Stepping::stand_still(const std::function<void()>& call, Point where,
                           const std::function<void()>& meanwhile) {
  run(call, {.is_on = false,
             .is_counting = false,
             .pauses = 0,
             .now = {},
             .where = where,
             .counts = nullptr,
             .meanwhile = &meanwhile});
  return state.meanwhile == nullptr;
}

Stepping::Paused::Paused() {
  if (state.is_on && state.pauses++ == 0) end_stretch();
}
Stepping::Paused::~Paused() {
  if (state.is_on && --state.pauses == 0) begin_stretch();
}

#else

bool Stepping::is_possible() { return false; }
void Stepping::count_only_in(std::initializer_list<std::string_view>) {}
std::vector<uint32_t> Stepping::count(const std::function<void()>& call) {
  return call(), std::vector<uint32_t>{};
}
bool Stepping::stand_still(const std::function<void()>& call, Point, const std::function<void()>&) {
  return call(), false;
}
Stepping::Paused::Paused() = default;
Stepping::Paused::~Paused() = default;

#endif

}  // namespace gpushare::shim
