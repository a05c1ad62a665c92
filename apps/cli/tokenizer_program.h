// The program that makes tokens, for `shoal tokenize` and for `shoal train --data chat:FILE`.
#pragma once

#include <string>
#include <vector>

namespace shoal::cli {

// A Python and tools/make_tokens.py. Throws shoal::Error when the script is not there.
std::vector<std::string> tokenizer_program();

}  // namespace shoal::cli
