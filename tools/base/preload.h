// SPDX-License-Identifier: Apache-2.0
// The machine-wide list of libraries that the loader puts into every program: /etc/ld.so.preload.
// What others wrote there stays, to the byte.
#pragma once

#include <string>
#include <string_view>

#include "shmctl/base/error.h"

namespace gpushare {

inline constexpr std::string_view kShimLibrary = "libgpushare.so";

// Beside this program: in ../lib/gpushare/ where it is installed, in ../lib/ where it was built.
// Error no_such_file_or_directory.
Result<std::string> find_shim_library();

// --- the list as text. Entries are separated by blanks, colons and line ends; # begins a comment.

// Is there an entry of this path, or, with `path` empty, of any libgpushare.so?
bool has_preload_entry(std::string_view text, std::string_view path);
// A line more, unless it is there.
std::string with_preload_entry(std::string_view text, std::string_view path);
// Without any libgpushare.so, wherever it lies; a line that had nothing else goes.
std::string without_preload_entry(std::string_view text);

// --- the list as a file below `root` ("" is the machine's own)

std::string preload_path(const std::string& root);
// "" where there is none.
Result<std::string> read_preload(const std::string& root);
// Whole or not at all, also when the machine stops meanwhile. An empty text removes the file.
Result<> write_preload(const std::string& root, const std::string& text);

// Whether an ordinary program starts with the library in it. The error says why not. It must belong
// to root, or to us, and nobody else may write to it: whoever can, would own every program.
Result<> try_preload(const std::string& library);

}  // namespace gpushare
