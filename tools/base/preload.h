// SPDX-License-Identifier: Apache-2.0
// The machine-wide list of libraries that the loader puts into every program: /etc/ld.so.preload.
// What others wrote there stays as it is, to the byte.
#pragma once

#include <string>
#include <string_view>

#include "shmctl/base/error.h"

namespace gpushare {

inline constexpr std::string_view kShimLibrary = "libgpushare.so";

// Returns the path of the library beside this program: in ../lib/gpushare/ where it is installed,
// in
// ../lib/ where it was built. The error is no_such_file_or_directory.
Result<std::string> find_shim_library();

// --- the list as text. Entries are separated by blanks, colons and line ends; # begins a comment.

// Returns whether there is an entry of this path or, if `path` is empty, of any libgpushare.so.
bool has_preload_entry(std::string_view text, std::string_view path);
// Adds a line, unless the entry is there.
std::string with_preload_entry(std::string_view text, std::string_view path);
// Takes out every libgpushare.so, wherever it lies. A line that had nothing else goes.
std::string without_preload_entry(std::string_view text);

// --- the list as a file below `root` ("" is the machine's own)

std::string preload_path(const std::string& root);
// Returns an empty text where there is no such file.
Result<std::string> read_preload(const std::string& root);
// Writes the file whole or not at all, also when the machine stops meanwhile. An empty text removes
// the file.
Result<> write_preload(const std::string& root, const std::string& text);

// Succeeds when an ordinary program starts with the library in it; the error says why it does not.
// The library and every folder above it must be such as check_owned_path() allows, because whoever
// can write to it or replace it owns every program.
Result<> try_preload(const std::string& library);

}  // namespace gpushare
