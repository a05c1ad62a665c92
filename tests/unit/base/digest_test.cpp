#include "base/digest.h"

#include <gtest/gtest.h>

#include <string>

namespace shoal {
namespace {

// Known values: the format promises this function for ever.
TEST(Digest, IsXxh3) {
  EXPECT_EQ(digest_text(digest_of("", 0)), "2d06800538d394c2");
  EXPECT_EQ(digest_text(digest_of("a", 1)), "e6c632b61e964e1f");
}

TEST(Digest, EveryBitCounts) {
  std::string bytes(1000, 'a');
  const uint64_t before = digest_of(bytes.data(), bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= 4;
    EXPECT_NE(digest_of(bytes.data(), bytes.size()), before) << i;
    bytes[i] ^= 4;
  }
  EXPECT_NE(digest_of(bytes.data(), bytes.size() - 1), before);
}

TEST(Digest, AStreamGivesThatOfTheWhole) {
  const std::string bytes(5000, 'b');
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{777}, bytes.size()}) {
    DigestStream stream;
    stream.add(bytes.data(), cut);
    stream.add(bytes.data() + cut, bytes.size() - cut);
    EXPECT_EQ(stream.value(), digest_of(bytes.data(), bytes.size())) << cut;
  }
}

TEST(Digest, TextReadsBackAndNothingElseIsADigest) {
  EXPECT_EQ(digest_text(0x1a), "000000000000001a");
  EXPECT_EQ(digest_from("000000000000001a"), 0x1au);
  EXPECT_EQ(digest_from("1a"), std::nullopt);
  EXPECT_EQ(digest_from("00000000000000zz"), std::nullopt);
  EXPECT_EQ(digest_from("000000000000001a0"), std::nullopt);
}

}  // namespace
}  // namespace shoal
