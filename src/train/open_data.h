// From what a user writes after --data to tokens that fit the model: text:PATH, tokens:PATH or
// synthetic[:key=value,...].
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "train/token_source.h"

namespace shoal::train {

// What the model can read.
struct Vocabulary {
  std::string model;  // its name, for messages
  int64_t vocab = 0;
  bool byte_tokens = false;  // its tokens are bytes
};

// Throws shoal::Error when the data cannot be read or does not belong to the vocabulary. synthetic takes the model's
// vocabulary; its keys are tokens, surprise and seed. A token file is looked at whole (check_tokens).
std::unique_ptr<TokenSource> open_data(const std::string& spec, const Vocabulary& vocabulary);

// Looks at every token. Throws shoal::Error that names the first one outside the vocabulary.
void check_tokens(const TokenSource& source, const Vocabulary& vocabulary);

}  // namespace shoal::train
