#include "models/base_digest.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "unit/checkpoint/on_ranks.h"
#include "unit/models/tiny_model.h"

namespace shoal::models {

namespace {

OpenOptions lora_of(uint64_t seed, int64_t rank = 2) {
  return {.seed = seed, .lora = LoraSpec{.rank = rank, .alpha = 1}};
}

std::string digest_of(const std::string& config, const OpenOptions& options) {
  return digest_frozen(testing::open_json(config, options)->units(), *make_single_group());
}

}  // namespace

TEST(DigestFrozen, IsTheSameOnEveryRankAndAtEveryNumberOfThem) {
  const std::string config = testing::tiny_llama_json(R"(, "tie_word_embeddings": true)");
  std::set<std::string> digests;
  std::mutex mutex;
  for (const int world : {1, 2, 3, 4}) {
    testing::on_ranks(world, [&](Group& group) {
      const std::string digest = digest_frozen(testing::open_json(config, lora_of(5))->units(), group);
      const std::lock_guard lock(mutex);
      digests.insert(digest);
    });
  }
  EXPECT_EQ(digests.size(), 1u);
}

TEST(DigestFrozen, IsOfTheBaseAlone) {
  const std::string config = testing::tiny_llama_json();
  const std::string digest = digest_of(config, lora_of(5));
  EXPECT_EQ(digest_of(config, lora_of(5, 3)), digest);
  EXPECT_NE(digest_of(config, lora_of(6)), digest);
  EXPECT_NE(digest_of(testing::tiny_llama_json(R"(, "tie_word_embeddings": true)"), lora_of(5)), digest);
}

// Larger than what a thread reads at a time.
TEST(DigestFrozen, DoesNotShowWhereItWasCut) {
  const std::string config =
      R"({"model_type": "llama", "vocab_size": 9001, "hidden_size": 64, "intermediate_size": 20,)"
      R"( "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16})";
  const std::string digest = digest_of(config, lora_of(5));
  testing::on_ranks(3, [&](Group& group) {
    EXPECT_EQ(digest_frozen(testing::open_json(config, lora_of(5))->units(), group), digest);
  });
}

}  // namespace shoal::models
