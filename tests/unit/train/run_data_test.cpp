#include "train/run_data.h"

#include <gmock/gmock.h>

#include "message_of.h"
#include "temp_folder.h"
#include "unit/train/write_tokens.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;
using testing::write_tokens;

const Vocabulary kModel = {"model", 1000, false};

std::vector<int64_t> counting(int64_t numel) {
  std::vector<int64_t> tokens(static_cast<size_t>(numel));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i);
  return tokens;
}

RunData open(const std::string& data, const CutOptions& cut = {.sequence = 4}) {
  return open_run_data(data, kModel, cut, {});
}

TEST(RunData, OneSourceIsCutAsItIsAndHasTheFingerprintOfItsTokens) {
  const TempFolder folder;
  write_tokens(folder / "a.bin", 1000, counting(41));
  const RunData data = open("tokens:" + folder / "a.bin");
  EXPECT_EQ(data.samples->train(), 10);
  EXPECT_FALSE(data.samples->has_documents());
  EXPECT_EQ(data.fingerprint.substr(0, 10), "41 tokens ");
  EXPECT_EQ(open(folder / "a.bin").fingerprint, data.fingerprint) << "a path alone: it says itself what it is";
  EXPECT_EQ(data.describe(), "tokens:" + folder / "a.bin");
}

TEST(RunData, SourcesAreMixedAndTheirWeightsBelongToTheFingerprint) {
  const TempFolder folder;
  write_tokens(folder / "a.bin", 1000, counting(41));
  write_tokens(folder / "b.bin", 1000, counting(81));
  const auto both = [&](const char* a, const char* b) {
    return open(folder / "a.bin" + ":" + a + "," + (folder / "b.bin") + ":" + b);
  };
  const RunData data = both("0.7", "0.3");
  EXPECT_EQ(data.samples->train(), 30);
  EXPECT_EQ(data.numel(), 122);
  EXPECT_THAT(data.describe(), HasSubstr("a.bin x 0.7, tokens:"));
  EXPECT_EQ(both("0.7", "0.3").fingerprint, data.fingerprint);
  EXPECT_NE(both("0.7", "0.4").fingerprint, data.fingerprint);
  EXPECT_THAT(message_of([&] { both("0.7", "0"); }), HasSubstr("0 is no weight"));
  write_tokens(folder / "b.bin", 1000, counting(3));
  EXPECT_THAT(message_of([&] { both("0.7", "0.3"); }), HasSubstr("3 tokens make no training sample of 4 tokens"));
  write_tokens(folder / "b.bin", 2000, counting(81));
  EXPECT_THAT(message_of([&] { both("0.7", "0.3"); }), HasSubstr("was made for a vocabulary of 2000"));
}

TEST(RunData, TokensOfEverySourceAreLookedAt) {
  const TempFolder folder;
  write_tokens(folder / "a.bin", 1000, counting(41));
  write_tokens(folder / "b.bin", 1000, {5, 5, 5, 5, 1001, 5});
  const RunData data = open(folder / "a.bin" + ":1," + (folder / "b.bin") + ":1");
  EXPECT_THAT(message_of([&] { check_tokens(data, kModel); }), HasSubstr("token 1001 at position 4 is beyond"));
}

TEST(RunData, PackingWithoutDocumentsIsRefused) {
  const TempFolder folder;
  write_tokens(folder / "a.bin", 1000, counting(41));
  EXPECT_THAT(message_of([&] { open(folder / "a.bin", {.sequence = 4, .packing = Packing::on}); }),
              HasSubstr("does not say where its documents end"));
  EXPECT_THAT(message_of([] { open("chat:"); }), HasSubstr("no path is given. Write chat:FILE."));
}

}  // namespace
}  // namespace shoal::train
