#include "config/value_check.h"

#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

static std::string mistake(const Key& key, const Value& value) { return check_value(key, value).mistake; }

TEST(ValueCheck, IntegersAreWholeAndInRange) {
  const Key key = integer("x", 1).at_least(0).at_most(7);
  EXPECT_EQ(mistake(key, 0), "");
  EXPECT_EQ(mistake(key, 7), "");
  EXPECT_EQ(mistake(key, 8), "8 is out of range. Give an integer of at least 0 and at most 7.");
  EXPECT_EQ(mistake(key, 1.5),
            "1.5 is not a whole number that fits 64 bits. Give an integer of at least 0 and at most 7.");
  EXPECT_EQ(mistake(key, 1e30),
            "1e+30 is not a whole number that fits 64 bits. Give an integer of at least 0 and at most 7.");
  EXPECT_EQ(mistake(key, true), "true has the wrong type. Give an integer of at least 0 and at most 7.");
  EXPECT_EQ(mistake(key, "3"), "\"3\" is a text. Write 3 without quotes.");
  EXPECT_EQ(mistake(key, "three"), "\"three\" has the wrong type. Give an integer of at least 0 and at most 7.");
  EXPECT_EQ(mistake(key, Value()),
            "null is not accepted here. Give an integer of at least 0 and at most 7, or leave the key out.");
}

TEST(ValueCheck, NumbersHaveOpenAndClosedBounds) {
  const Key key = number("x", 1).above(0).below(1);
  EXPECT_EQ(mistake(key, 0.5), "");
  EXPECT_EQ(mistake(key, 0), "0 is out of range. Give a number above 0 and below 1.");
  EXPECT_EQ(mistake(key, 1.0), "1 is out of range. Give a number above 0 and below 1.");
  EXPECT_EQ(mistake(number("x", 1), -3), "");
  EXPECT_EQ(mistake(number("x", 1).at_most(0.5), 2), "2 is out of range. Give a number of at most 0.5.");
}

TEST(ValueCheck, ARowMayHaveItsOwnRemedy) {
  EXPECT_EQ(mistake(integer("stage", 0).at_most(3).or_else("is not a stage."), 9), "9 is not a stage.");
}

TEST(ValueCheck, BooleansMayBeZeroAndOneAndAreNotTexts) {
  EXPECT_EQ(mistake(boolean("x", true), false), "");
  EXPECT_EQ(check_value(boolean("x", true), 0).value, Value(false));
  EXPECT_EQ(check_value(boolean("x", false), 1).value, Value(true));
  EXPECT_EQ(mistake(boolean("x", true), 2), "2 has the wrong type. Give true or false.");
  EXPECT_EQ(mistake(boolean("x", true), 0.5), "0.5 has the wrong type. Give true or false.");
  EXPECT_EQ(mistake(boolean("x", true), "True"), "\"True\" is a text. Write true without quotes.");
}

TEST(ValueCheck, ChoicesIgnoreLetterCaseAndTakeSynonyms) {
  const Key key = text("x", Value()).dtype();
  EXPECT_EQ(check_value(key, "BF16").value, Value("bf16"));
  EXPECT_EQ(check_value(key, "torch.float16").value, Value("fp16"));
  EXPECT_EQ(check_value(key, Value()).mistake, "");
  EXPECT_EQ(mistake(key, "fp8"), "\"fp8\" is not known. Did you mean \"fp32\"? Give one of fp32, bf16, fp16, or null.");
  EXPECT_EQ(mistake(text("t", "A").one_of({"A"}).not_yet({"Lamb"}), "lamb"),
            "Lamb is not supported yet. Give one of A.");
}

TEST(ValueCheck, PairsAreTwoNumbersInRange) {
  const Key key = pair_of_numbers("betas", Value()).at_least(0).below(1);
  EXPECT_EQ(mistake(key, json::parse("[0, 0.9]", "t")), "");
  EXPECT_EQ(mistake(key, json::parse("[0.9, 1]", "t")),
            "[0.9, 1] is out of range. Give two numbers of at least 0 and below 1, or null.");
  EXPECT_NE(mistake(key, json::parse("[0.9]", "t")), "");
  EXPECT_NE(mistake(key, json::parse("[0.9, \"x\"]", "t")), "");
  EXPECT_NE(mistake(key, 0.9), "");
}

TEST(ValueCheck, ListsHoldTextsOnly) {
  EXPECT_EQ(mistake(list_of_texts("x"), json::parse("[]", "t")), "");
  EXPECT_EQ(mistake(list_of_texts("x"), json::parse("[\"a\"]", "t")), "");
  EXPECT_EQ(check_value(list_of_texts("x"), "one").value, Value(json::Array{Value("one")}));
  EXPECT_EQ(mistake(list_of_texts("x"), json::parse("[1]", "t")), "[1] has the wrong type. Give a list of texts.");
}

TEST(ValueCheck, BytesAreAnIntegerOrATextWithAUnit) {
  const Key key = nbytes("x", 0).at_least(0).at_most(1e12);
  EXPECT_EQ(check_value(key, 7).value, Value(7));
  EXPECT_EQ(check_value(key, "24GiB").value, Value(int64_t{24} << 30));
  EXPECT_EQ(check_value(key, "24gb").value, Value(24'000'000'000));
  EXPECT_EQ(mistake(key, "24 potatoes"),
            "\"24 potatoes\" ends with a unit that is not known. Use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB.");
  EXPECT_EQ(mistake(key, 0.5),
            "0.5 has the wrong type. Give an integer of at least 0 and at most 1000000000000, or a text such as "
            "\"24GiB\".");
  EXPECT_NE(mistake(key, "2TB"), "");
}

TEST(ValueCheck, LongValuesAreCutInMessages) {
  EXPECT_EQ(show(std::string(100, 'x')), "\"" + std::string(59, 'x') + "...");
}

}  // namespace shoal::config
