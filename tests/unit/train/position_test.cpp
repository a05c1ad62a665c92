#include "train/position.h"

#include <gmock/gmock.h>

#include "message_of.h"
#include "temp_folder.h"
#include "train/synthetic_source.h"
#include "train/text_source.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

const Position kPlace{.samples = 96, .seed = 7, .sequence = 64, .train_samples = 900, .data = "1000 tokens ab"};

std::map<std::string, std::string> saved() {
  std::map<std::string, std::string> extra{{"model", "m"}};
  put_position(kPlace, extra);
  return extra;
}

TEST(Position, ComesBackFromACheckpoint) { EXPECT_EQ(resumed_samples(saved(), kPlace), 96); }

TEST(Position, ACheckpointWithoutOneStartsTheData) { EXPECT_EQ(resumed_samples({{"model", "m"}}, kPlace), 0); }

TEST(Position, AnotherOrderOfSamplesIsAnErrorThatNamesTheFlag) {
  const auto message = [](auto change) {
    Position expected = kPlace;
    change(expected);
    return message_of([&] { resumed_samples(saved(), expected); });
  };
  EXPECT_THAT(message([](Position& p) { p.seed = 8; }), HasSubstr("[--seed] the checkpoint was made with 7"));
  EXPECT_THAT(message([](Position& p) { p.sequence = 65; }), HasSubstr("[--sequence]"));
  EXPECT_THAT(message([](Position& p) { p.train_samples = 899; }), HasSubstr("[--validation]"));
  EXPECT_THAT(message([](Position& p) { p.data = "x"; }), HasSubstr("[--data]"));
  std::map<std::string, std::string> damaged = saved();
  for (auto& [key, value] : damaged) {
    if (value == "96") value = "9x";
  }
  EXPECT_THAT(message_of([&] { resumed_samples(damaged, kPlace); }), HasSubstr("damaged"));
}

TEST(Fingerprint, IsThatOfTheTokensNotOfThePath) {
  const testing::TempFolder folder;
  const std::string text(10'000, 'a');
  const auto of = [&](const std::string& name, const std::string& content) {
    return fingerprint_of(*open_text(folder.write(name, content)));
  };
  EXPECT_EQ(of("x", text), of("y", text));
  EXPECT_NE(of("x", text), of("y", text + "a"));
  EXPECT_NE(of("x", text), of("y", "b" + text.substr(1)));
  EXPECT_NE(of("x", text), of("y", text.substr(1) + "b"));
  EXPECT_EQ(of("x", "a").substr(0, 8), "1 tokens");
  EXPECT_NE(fingerprint_of(*make_synthetic({.seed = 1})), fingerprint_of(*make_synthetic({.seed = 2})));
}

}  // namespace
}  // namespace shoal::train
