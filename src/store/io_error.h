// What is said about a failed call on a disk: the system's words, and what to do.
#pragma once

#include <filesystem>
#include <string>

#include "shoal/error.h"

namespace shoal {

// "Input/output error (EIO)".
std::string words_of_errno(int error_number);
// " The disk may be failing: ..."; "" where we have no advice.
std::string advice_for_errno(int error_number);
// "[disk <path>] cannot <verb>: <the system's words>. <what to do>"
Error disk_error(const std::filesystem::path& path, const std::string& verb, int error_number);
// The place of an Error about this path.
std::string disk_place(const std::filesystem::path& path);

}  // namespace shoal
