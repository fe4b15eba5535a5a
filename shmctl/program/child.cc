// SPDX-License-Identifier: Apache-2.0
#include "shmctl/program/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

namespace gpushare {
namespace {

constexpr const char* kStep = "start a program";
constexpr size_t kLastLines = 8;
constexpr Nanos kPatience = std::chrono::seconds(3);

std::vector<std::string> environment_of(const Launch& launch) {
  std::vector<std::string> result;
  const auto name_of = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  for (char** entry = environ; *entry != nullptr && !launch.is_environment_whole; ++entry) {
    const auto is_same = [&](const std::string& change) {
      return name_of(change) == name_of(*entry);
    };
    if (std::ranges::none_of(launch.environment, is_same)) result.emplace_back(*entry);
  }
  for (const std::string& change : launch.environment)
    if (change.find('=') != std::string::npos) result.push_back(change);
  return result;
}

struct Ends {
  int input, output, errors;
  int failure;  // a pipe, which takes the errno of what failed
};

// Between fork and exec: only calls that are safe there.
[[noreturn]] void become(const Launch& launch, char** arguments, char** environment,
                         const Ends& ends, pid_t parent) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (launch.leads_group) ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, launch.end_signal);
  if (::getppid() != parent) ::_exit(127);  // it died before that
  ::dup2(ends.input, STDIN_FILENO);
  ::dup2(ends.output, STDOUT_FILENO);
  ::dup2(ends.errors, STDERR_FILENO);
  ::execvpe(arguments[0], arguments, environment);
  const int code = errno;
  [[maybe_unused]] const auto written = ::write(ends.failure, &code, sizeof code);
  ::_exit(127);
}

Fd file_in_memory() {
  Fd file(::memfd_create("output", MFD_CLOEXEC));
  if (file.is_open()) ::fcntl(file.get(), F_SETFL, O_APPEND);
  return file;
}

}  // namespace

std::vector<char*> exec_pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  list.reserve(words.size() + 1);
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

Child::Child(Launch launch, Fd output, Fd errors)
    : launch_(std::move(launch)), output_(std::move(output)), errors_(std::move(errors)) {
  if (!launch_.log.empty()) begin_ = ::lseek(output_.get(), 0, SEEK_END);
  if (launch_.name.empty())
    launch_.name = std::filesystem::path(launch_.command[0]).filename().string();
}

Result<Child> Child::start(Launch launch) {
  const auto open_file = [&] {
    return launch.is_shown ? Fd()
           : launch.log.empty()
               ? file_in_memory()
               : Fd(::open(launch.log.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  };
  Fd output = open_file(), errors = open_file();
  if (!launch.is_shown && (!output.is_open() || !errors.is_open()))
    return errno_error(kStep, launch.log);
  Child child(std::move(launch), std::move(output), std::move(errors));

  std::vector<std::string> variables = environment_of(child.launch_);
  std::vector<std::string> words = child.launch_.command;
  const std::vector<char*> arguments = exec_pointers(words), environment = exec_pointers(variables);
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return errno_error(kStep, child.name());
  const Fd failed(pipe[0]);
  Fd failure(pipe[1]);
  const Fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const bool is_shown = child.launch_.is_shown;
  const Ends ends{.input = is_shown ? STDIN_FILENO : nothing.get(),
                  .output = !is_shown                      ? child.output_.get()
                            : child.launch_.has_our_output ? STDOUT_FILENO
                                                           : STDERR_FILENO,
                  .errors = is_shown ? STDERR_FILENO : child.errors_.get(),
                  .failure = failure.get()};
  const pid_t self = ::getpid(), pid = ::fork();
  if (pid == 0)
    become(child.launch_, const_cast<char**>(arguments.data()),
           const_cast<char**>(environment.data()), ends, self);
  if (pid < 0) return errno_error(kStep, child.name());
  failure.reset();
  int code = 0;
  if (::read(failed.get(), &code, sizeof code) == sizeof code) {
    ::waitpid(pid, nullptr, 0);
    return make_error(static_cast<std::errc>(code), kStep, words[0]);
  }
  child.pid_ = pid;
  return child;
}

Child::Child(Child&& other) noexcept
    : launch_(std::move(other.launch_)),
      output_(std::move(other.output_)),
      errors_(std::move(other.errors_)),
      begin_(other.begin_),
      pid_(std::exchange(other.pid_, -1)),
      status_(other.status_) {}

Child::~Child() {
  stop(kPatience, launch_.end_signal);
  if (pid_ > 0 && launch_.keeps_number) ::waitpid(pid_, nullptr, 0);
}

void Child::look(int flags) const {
  siginfo_t info{};
  if (launch_.keeps_number) flags |= WNOWAIT;
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | flags) == 0 && info.si_pid == pid_)
    status_ = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

bool Child::has_ended() const {
  if (pid_ < 0 || status_) return true;
  look(WNOHANG);
  return status_.has_value();
}

void Child::signal(int number) const {
  if (!has_ended()) ::kill(pid_, number);
}

void Child::kill() {
  if (has_ended()) return;
  ::kill(pid_, SIGKILL);
  look(0);
}

int Child::stop(Nanos patience, int number) {
  signal(number);
  if (number != SIGKILL) eventually([this] { return has_ended(); }, patience);
  kill();
  return status_.value_or(0);
}

Result<> Child::await(std::string_view what, const std::function<bool()>& is_so, Nanos limit,
                      Wait* wait) const {
  Wait undisturbed;
  if (wait == nullptr) wait = &undisturbed;
  const auto look = [&]() -> Result<bool> {
    const bool is_over = has_ended();  // asked first: the condition may be that it has
    if (is_so()) return true;
    if (is_over) return std::unexpected(failure("wait for a program"));
    return false;
  };
  const auto held = wait->until(look, limit);
  if (!held) return std::unexpected(held.error());
  if (*held) return {};
  return std::unexpected(
      failure("wait for a program", fmt::format("{} did not {} within {:.0f} s", name(), what,
                                                std::chrono::duration<double>(limit).count())));
}

Result<int> Child::finish(Nanos limit) {
  const auto ended = await("end", [this] { return has_ended(); }, limit);
  if (ended) return status();
  kill();
  return std::unexpected(ended.error());
}

std::string Child::text_of(const Fd& file) const {
  std::string text;
  char part[4096];
  while (file.is_open()) {
    const ssize_t got =
        ::pread(file.get(), part, sizeof part, begin_ + static_cast<off_t>(text.size()));
    if (got <= 0) break;
    text.append(part, static_cast<size_t>(got));
  }
  return text;
}

std::string Child::last_line() const {
  const std::string text = output();
  const size_t end = text.find_last_not_of('\n') + 1;
  const size_t before = text.substr(0, end).rfind('\n');
  return text.substr(0, end).substr(before == std::string::npos ? 0 : before + 1);
}

Error Child::failure(const char* step) const {
  if (!has_ended()) return failure(step, name() + " still runs");
  return failure(step, status() > 128
                           ? fmt::format("{} was killed by signal {}", name(), status() - 128)
                           : fmt::format("{} ended with status {}", name(), status()));
}

Error Child::failure(const char* step, const std::string& what) const {
  const std::string text = launch_.log.empty() ? output() + errors() : output();
  size_t begin = text.find_last_not_of('\n') + 1;
  const std::string lines = text.substr(0, begin);
  for (size_t line = 0; line < kLastLines && begin != 0; ++line) {
    const size_t before = begin < 2 ? std::string::npos : lines.rfind('\n', begin - 2);
    begin = before == std::string::npos ? 0 : before + 1;
  }
  std::string detail = what;
  detail += lines.empty() ? "; it printed nothing" : "; the end of its output:\n    ";
  for (const char c : lines.substr(begin)) detail += c == '\n' ? "\n    " : std::string(1, c);
  return {.code = {}, .step = step, .detail = std::move(detail)};
}

std::string own_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

}  // namespace gpushare
