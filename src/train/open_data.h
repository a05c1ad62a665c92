// From one source of what a user writes after --data to tokens that fit the model: text:PATH, tokens:PATH, the path of
// a token file alone, or synthetic[:key=value,...]. (chat: and prompts: become token files first: chat_file.h.)
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "train/data_spec.h"
#include "train/token_source.h"

namespace shoal::train {

// What the model can read.
struct Vocabulary {
  std::string model;  // its name, for messages
  int64_t vocab = 0;
  bool byte_tokens = false;  // its tokens are bytes
};

// Throws shoal::Error when the data cannot be read or does not belong to the vocabulary. synthetic takes the model's
// vocabulary; its keys are tokens, surprise and seed. Tokens of a file are not looked at: check_tokens does.
std::unique_ptr<TokenSource> open_data(const DataSpec& spec, const Vocabulary& vocabulary);

// What to tell the user about tokens that are of fewer words than the model has by more than the padding of a
// vocabulary: they may be another tokenizer's, and no single token would show it. "": nothing.
std::string doubt_about_tokens(const TokenSource& source, const Vocabulary& vocabulary);

// Which of several readers this one is; each looks at its own part, all together at every token.
struct ReaderPart {
  int index = 0;
  int of = 1;
};

// Looks at the tokens of a source that is not known to be sound. Throws shoal::Error that names the first one outside
// the vocabulary.
void check_tokens(const TokenSource& source, const Vocabulary& vocabulary, const ReaderPart& part = {});

}  // namespace shoal::train
