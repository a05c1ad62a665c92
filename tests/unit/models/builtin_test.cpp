#include "models/builtin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace shoal::models {

TEST(Builtins, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Builtin& builtin : builtins()) EXPECT_TRUE(names.insert(builtin.name).second) << builtin.name;
}

TEST(Builtins, AreFoundByName) {
  ASSERT_NE(find_builtin("llama-8b"), nullptr);
  EXPECT_EQ(find_builtin("llama-8b")->config.find("num_key_value_heads")->as_integer(), 8);
  EXPECT_EQ(find_builtin("llama-9b"), nullptr);
}

TEST(Builtins, HaveTheVocabularyOfTheirOriginal) {
  const auto vocab = [](const char* name) { return find_builtin(name)->config.find("vocab_size")->as_integer(); };
  EXPECT_EQ(vocab("llama-7b"), 32000);
  EXPECT_EQ(vocab("llama-8b"), 128256);
  EXPECT_EQ(vocab("gpt2"), 50257);
}

TEST(Builtins, OnlyAVocabularyOfBytesTakesBytes) {
  for (const Builtin& builtin : builtins()) {
    EXPECT_EQ(builtin.byte_tokens, builtin.config.find("vocab_size")->as_integer() == 256) << builtin.name;
  }
}

}  // namespace shoal::models
