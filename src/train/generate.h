// `shoal generate`: a model over bytes goes on with a text. On one rank, in fp32; every token is a whole forward, so it
// is for a look at a small model, not for serving.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace shoal::train {

struct GenerateOptions {
  std::string model = {};       // a name or folder; "": the checkpoint's own
  std::string checkpoint = {};  // a checkpoint, a folder of them, or a run; "": the model's own weights
  std::string prompt = {};
  int64_t tokens = 200;
  double temperature = 0.8;  // 0: always the likeliest
  uint64_t seed = 1;
  std::function<void(const std::string&)> note = {};  // takes what is said about the text and is no part of it
};

// Hands on the prompt, then each byte when it is there. Throws shoal::Error when the model's tokens are not bytes.
void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& emit);

}  // namespace shoal::train
