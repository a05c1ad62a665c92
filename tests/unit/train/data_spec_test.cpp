#include "train/data_spec.h"

#include <gmock/gmock.h>

#include "message_of.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

std::string told(const std::string& data) {
  std::string text;
  for (const DataSpec& spec : parse_data(data)) {
    text += "<" + spec.kind + "|" + spec.rest + "|" + std::to_string(spec.weight).substr(0, 4) + ">";
  }
  return text;
}

TEST(DataSpec, IsASourceOrSeveralWithWeights) {
  EXPECT_EQ(told("text:docs"), "<text|docs|1.00>");
  EXPECT_EQ(told("a.bin"), "<|a.bin|1.00>");
  EXPECT_EQ(told("chat"), "<chat||1.00>");
  EXPECT_EQ(told("synthetic:tokens=5,seed=2"), "<synthetic|tokens=5,seed=2|1.00>");
  EXPECT_EQ(told("a.bin:0.7,chat:b.jsonl:0.3"), "<|a.bin|0.70><chat|b.jsonl|0.30>");
  EXPECT_EQ(told("tokens:a,b.bin"), "<tokens|a,b.bin|1.00>") << "a path may hold a comma";
  EXPECT_EQ(told("c:/a.bin"), "<|c:/a.bin|1.00>") << "what stands before the colon is no kind";
  EXPECT_EQ(told("synthetic:1,synthetic:3"), "<synthetic||1.00><synthetic||3.00>");
}

TEST(DataSpec, SettingsOfSyntheticBelongToItUntilItsWeight) {
  EXPECT_EQ(told("synthetic:tokens=1000,seed=2:0.5,a.bin:0.5"), "<synthetic|tokens=1000,seed=2|0.50><|a.bin|0.50>");
  EXPECT_EQ(told("a.bin:0.5,synthetic:tokens=5,surprise=0.5,seed=2:0.5"),
            "<|a.bin|0.50><synthetic|tokens=5,surprise=0.5,seed=2|0.50>");
  EXPECT_EQ(told("synthetic:tokens=5,seed=1:1,synthetic:tokens=5,seed=2:3"),
            "<synthetic|tokens=5,seed=1|1.00><synthetic|tokens=5,seed=2|3.00>");
  EXPECT_EQ(told("synthetic:seed=1:1,b=c.bin:3"), "<synthetic|seed=1|1.00><|b=c.bin|3.00>") << "the weight ends it";
}

TEST(DataSpec, AWeightForSomeIsAnError) {
  EXPECT_THAT(message_of([] { parse_data("a.bin:0.7,b.bin"); }), HasSubstr("\"b.bin\" has no weight"));
  EXPECT_THAT(message_of([] { parse_data("a.bin:0.7,"); }), HasSubstr("\"\" has no weight"));
  EXPECT_THAT(message_of([] { parse_data("synthetic:tokens=5,a.bin:0.5"); }),
              HasSubstr("\"synthetic:tokens=5\" has no weight"));
  EXPECT_THAT(message_of([] { parse_data("a.bin:0.5,synthetic:tokens=5,seed=2"); }),
              HasSubstr("\"synthetic:tokens=5,seed=2\" has no weight"));
}

}  // namespace
}  // namespace shoal::train
