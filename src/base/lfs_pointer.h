// A pointer of Git LFS: the few lines that a clone holds in place of a large file until `git lfs pull` fetches it.
#pragma once

#include <string_view>

namespace shoal {

// Whether a file that begins with these bytes is one.
bool is_lfs_pointer(std::string_view bytes);

// Throws shoal::Error where it is. For readers of files that people fetch: models, tokenizers, data.
void refuse_lfs_pointer(std::string_view bytes, std::string_view place);

}  // namespace shoal
