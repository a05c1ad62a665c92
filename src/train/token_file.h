// Token files: what `shoal tokenize` writes and `--data tokens:PATH` reads, memory-mapped. The format is in
// docs/formats/tokens.md.
#pragma once

#include <memory>
#include <string>

#include "train/token_source.h"

namespace shoal::train {

// Opens a file with the header, or one without it that has a sidecar PATH.json. Throws shoal::Error when neither fits
// the file. Tokens are not looked at.
std::unique_ptr<TokenSource> open_token_file(const std::string& path);

// Whether a file begins as one with the header does.
bool is_token_file(const std::string& path);

}  // namespace shoal::train
