// See lfs_pointer.h.
#include "base/lfs_pointer.h"

#include <fmt/format.h>

#include <charconv>

#include "base/text.h"
#include "shoal/error.h"

namespace shoal {

namespace {

// "version https://git-lfs.github.com/spec/v1\noid sha256:...\nsize 12345\n"
constexpr std::string_view kBegin = "version https://git-lfs.github.com/spec/";
constexpr std::string_view kSize = "\nsize ";
constexpr size_t kLongest = 1024;  // by the specification

}  // namespace

bool is_lfs_pointer(std::string_view bytes) { return bytes.starts_with(kBegin); }

void refuse_lfs_pointer(std::string_view bytes, std::string_view place) {
  if (!is_lfs_pointer(bytes)) return;
  const std::string_view lines = bytes.substr(0, kLongest);
  uint64_t nbytes = 0;
  if (const size_t at = lines.find(kSize); at != std::string_view::npos) {
    std::from_chars(lines.data() + at + kSize.size(), lines.data() + lines.size(), nbytes);
  }
  throw Error(place, fmt::format("is a pointer of Git LFS and not the file itself{}. Fetch it: run `git lfs pull` in "
                                 "its folder.",
                                 nbytes > 0 ? fmt::format(", which has {}", format_nbytes(nbytes)) : ""));
}

}  // namespace shoal
