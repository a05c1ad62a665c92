#include "train/generate.h"

#include <gmock/gmock.h>

#include "message_of.h"
#include "temp_folder.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

std::string generated(const GenerateOptions& options) {
  std::string text;
  generate(options, [&](std::string_view bytes) { text += bytes; });
  return text;
}

TEST(Generate, AddsAsManyBytesAsAskedAlsoBeyondTheModelsLength) {
  const testing::TempFolder folder;
  folder.write("config.json", R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 8,
    "rms_norm_eps": 1e-5, "vocab_size": 256})");
  const GenerateOptions options{.model = folder.path(), .prompt = "abc", .tokens = 12};
  EXPECT_EQ(generated(options).size(), 3 + 12u);
  EXPECT_EQ(generated(options).substr(0, 3), "abc");
  EXPECT_EQ(generated(options), generated(options));
}

TEST(Generate, SaysThatAModelWithoutWeightsWritesNoise) {
  std::string said;
  GenerateOptions options{.model = "llama-tiny", .prompt = "a", .tokens = 0};
  options.note = [&](const std::string& text) { said = text; };
  generated(options);
  EXPECT_EQ(said,
            "built-in model llama-tiny comes without weights, and no --checkpoint is given: what follows is noise.");
}

TEST(Generate, SaysWhatIsMissing) {
  EXPECT_THAT(message_of([] { generated({.prompt = "a"}); }), HasSubstr("[--checkpoint]"));
  EXPECT_THAT(message_of([] { generated({.model = "llama-tiny"}); }), HasSubstr("[--prompt]"));
  EXPECT_THAT(message_of([] { generated({.model = "gpt2", .prompt = "a"}); }), HasSubstr("50257 tokens are not bytes"));
  EXPECT_THAT(message_of([] { generated({.checkpoint = "/none", .prompt = "a"}); }), HasSubstr("[--checkpoint]"));
}

}  // namespace
}  // namespace shoal::train
