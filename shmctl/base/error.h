// SPDX-License-Identifier: Apache-2.0
// The one error type of the project. A failure names the step that was attempted and why it failed;
// it travels up as a value and is reported once, where the decision is made. No exceptions cross a
// file: the few libraries that throw are caught in the file that calls them.
#pragma once

#include <cerrno>
#include <expected>
#include <string>
#include <system_error>
#include <utility>

namespace gpushare {

struct Error {
  std::error_code code;
  const char* step = "";  // a literal that says what was attempted ("open control plane")
  std::string detail;     // what a person needs besides: the path, the key, the allowed values

  // One line: "open control plane: /dev/shm/gpushare: Permission denied".
  std::string message() const;
};

// A value of type T, or the error that prevented it.
template <class T = void>
using Result = std::expected<T, Error>;

// An error with the code that errno holds: call it on the line after the call that failed.
inline std::unexpected<Error> errno_error(const char* step, std::string detail = {}) {
  return std::unexpected(
      Error{std::error_code(errno, std::generic_category()), step, std::move(detail)});
}

// An error that our own code found.
inline std::unexpected<Error> make_error(std::errc code, const char* step,
                                         std::string detail = {}) {
  return std::unexpected(Error{std::make_error_code(code), step, std::move(detail)});
}

}  // namespace gpushare
