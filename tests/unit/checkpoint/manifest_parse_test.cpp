// The reader of manifest.json, in manifest_parse.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "checkpoint/manifest.h"
#include "checkpoint/manifest_text.h"
#include "training/outcome.h"
#include "unit/checkpoint/sample_manifest.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::message_of;
using shoal::testing::sample_manifest;
using ::testing::HasSubstr;

// What the reader says of a text.
std::string said_of(const std::string& text) {
  return message_of([&] { parse_manifest(text, "checkpoint x"); });
}
// The same of a manifest, or of its text with one place changed and the seal made anew.
std::string said_of(const Manifest& manifest) { return said_of(write_manifest(manifest)); }
std::string said_with(const std::string& old_text, const std::string& new_text) {
  std::string text = write_manifest(sample_manifest());
  text.erase(text.rfind(kSealKey));
  const size_t at = text.find(old_text);
  if (at == std::string::npos) return "no such text";
  return said_of(seal(text.replace(at, old_text.size(), new_text)));
}

TEST(ManifestParse, ReadsBackWhatWasWritten) {
  const Manifest manifest = sample_manifest();
  const std::string text = write_manifest(manifest);
  const Manifest back = parse_manifest(text, "checkpoint x");
  EXPECT_EQ(write_manifest(back), text);
  EXPECT_EQ(back.extra, manifest.extra);
  EXPECT_EQ(back.progress.loss_scale, 65536.5);
  EXPECT_EQ(json::parse(back.config, "config"), json::parse(manifest.config, "config"));
}

TEST(ManifestParse, NoPrefixIsTakenForAWholeManifest) {
  const std::string text = write_manifest(sample_manifest());
  for (size_t length = 0; length < text.size(); ++length) EXPECT_NE(said_of(text.substr(0, length)), "") << length;
}

TEST(ManifestParse, NoFlippedBitPasses) {
  std::string text = write_manifest(sample_manifest());
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] ^= 1;
    EXPECT_NE(said_of(text), "") << i;
    text[i] ^= 1;
  }
}

TEST(ManifestParse, SaysWhatIsDamaged) {
  EXPECT_EQ(said_of(""), "[checkpoint x] manifest.json is not whole: it has no checksum of its own.");
  std::string text = write_manifest(sample_manifest());
  text[10] = 'X';
  EXPECT_THAT(said_of(text), HasSubstr("[checkpoint x] manifest.json is damaged: "));
}

TEST(ManifestParse, RefusesLaterVersionsAndOtherFiles) {
  EXPECT_THAT(said_with("\"version\": 1", "\"version\": 2"), HasSubstr("has version 2; this program reads up to 1"));
  EXPECT_THAT(said_with("shoal checkpoint", "shoal something"), HasSubstr("is not of a Shoal checkpoint"));
}

TEST(ManifestParse, NamesWhatIsMissingOrWrong) {
  EXPECT_THAT(said_with("\"step\": 120", "\"stop\": 120"), HasSubstr("has no \"step\""));
  EXPECT_THAT(said_with("\"step\": 120", "\"step\": -1"), HasSubstr("\"step\" that is not an integer from 0"));
  EXPECT_THAT(said_with("\"world\": 2", "\"world\": 0"), HasSubstr("\"world\""));
  EXPECT_THAT(said_with("\"bf16\"", "\"bf17\""), HasSubstr("unknown dtype \"bf17\""));
  EXPECT_THAT(said_with("\"first_moment\"", "\"third_moment\""), HasSubstr("unknown state \"third_moment\""));
  EXPECT_THAT(said_with("fedcba9876543210", "fedcba987654321"), HasSubstr("not 16 hexadecimal digits"));
  EXPECT_THAT(said_with("[3, 5]", "[3, -5]"), HasSubstr("impossible shape of w"));
  EXPECT_THAT(said_with("[3, 5]", "[4000000000, 4000000000]"), HasSubstr("impossible shape of w"));
  // Bytes that 64 bits do not count, though the elements would fit.
  EXPECT_THAT(said_with("[3, 5]", "[3000000000, 2000000000]"), HasSubstr("impossible shape of w"));
  EXPECT_THAT(said_with("[3, 5]", "[4611686018427387904]"), HasSubstr("impossible shape of w"));
  EXPECT_THAT(said_with("\"name\": \"none\"", "\"name\": \"w\""), HasSubstr("the parameter w twice"));
  EXPECT_THAT(said_with("\"name\": \"rank-00001.bin\"", "\"name\": \"../a\""), HasSubstr("is no plain name"));
  EXPECT_THAT(said_with("\"name\": \"rank-00001.bin\"", "\"name\": \"b\""),
              HasSubstr("has no file \"rank-00001.bin\""));
}

TEST(ManifestParse, RefusesPiecesOutsideTheirFile) {
  Manifest manifest = sample_manifest();
  manifest.files[1].nbytes -= 1;
  EXPECT_THAT(said_of(manifest), HasSubstr("puts weight of frozen, elements 0 to 0 beyond the end of rank-00001.bin"));
  manifest = sample_manifest();
  manifest.randoms[0].nbytes = 100;
  EXPECT_THAT(said_of(manifest), HasSubstr("puts the random state of rank 0 beyond the end"));
}

TEST(ManifestParse, RefusesGapsOverlapsAndStrangers) {
  Manifest manifest = sample_manifest();
  manifest.pieces[0].numel = 9;
  EXPECT_THAT(said_of(manifest), HasSubstr("does not cover the weight of w once: one piece ends before element 9, the "
                                           "next begins at 10"));
  manifest = sample_manifest();
  manifest.pieces[2].begin = 9;
  EXPECT_THAT(said_of(manifest), HasSubstr("does not cover the weight of w once"));
  manifest = sample_manifest();
  manifest.pieces.pop_back();
  EXPECT_THAT(said_of(manifest), HasSubstr("does not cover the weight of frozen once"));
  manifest = sample_manifest();
  manifest.pieces[1].kind = StateKind::second_moment;
  EXPECT_NE(said_of(manifest), "");
  manifest = sample_manifest();
  manifest.pieces.push_back({2, StateKind::first_moment, 0, 1, DType::f32, 0, 0, 0});
  EXPECT_THAT(said_of(manifest), HasSubstr("has a piece that must not be: first_moment of frozen"));
}

}  // namespace
}  // namespace shoal::checkpoint
