// --data chat:FILE and prompts:FILE: conversations as a token file, which the model's own tokenizer and chat template
// make of them once (tools/make_tokens.py) and later runs find again.
#pragma once

#include <string>
#include <vector>

#include "train/data_spec.h"

namespace shoal::train {

struct TokenizerPlace {
  std::vector<std::string> program;  // what `shoal tokenize` runs: an interpreter and its script
  std::string model_folder;          // holds tokenizer.json
  std::string run_folder;            // token files go into a folder of it; "": into .shoal beside FILE
};

// The path of the token file, made now if it is not there. Ranks and runs that want the same file at one time wait for
// the one that makes it; on hosts that cannot see each other's locks two may make it, and both make the same. Throws
// shoal::Error when there is no tokenizer, or what it said is to be read.
std::string token_file_of(const DataSpec& spec, const TokenizerPlace& place);

}  // namespace shoal::train
