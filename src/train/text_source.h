// Bytes of text files as tokens: --data text:PATH, a file or a folder.
#pragma once

#include <memory>
#include <string>

#include "train/token_source.h"

namespace shoal::train {

inline constexpr int64_t kByteVocab = 256;

// A folder is read with its subfolders, files in the order of their paths, one right after the other; names that begin
// with a dot are left out. Throws shoal::Error when there is nothing to read.
std::unique_ptr<TokenSource> open_text(const std::string& path);

}  // namespace shoal::train
