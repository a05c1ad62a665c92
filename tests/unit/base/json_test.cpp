#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace shoal::json {

TEST(Json, ObjectsKeepTheOrderOfTheirKeys) {
  Value object{Object{}};
  object.set("zebra", 1);
  object.set("apple", 2);
  object.set("zebra", 3);
  EXPECT_EQ(write(object), R"({"zebra": 3, "apple": 2})");
  EXPECT_TRUE(object.erase("zebra"));
  EXPECT_FALSE(object.erase("zebra"));
  EXPECT_EQ(object.find("zebra"), nullptr);
  EXPECT_EQ(object.find("apple")->as_integer(), 2);
}

TEST(Json, EqualityIsByContentNotByPlaceOrSpellingOfNumbers) {
  EXPECT_EQ(parse("[1, 2.0, 5e8]", "text"), parse("[\n1.0, 2, 500000000]", "text"));
  EXPECT_NE(Value(1), Value(true));
  EXPECT_NE(Value("1"), Value(1));
  EXPECT_NE(Value(), Value(0));
  EXPECT_EQ(Value(INT64_MAX), Value(INT64_MAX));
  EXPECT_NE(Value(INT64_MAX), Value(INT64_MAX - 1));  // equal as doubles
}

TEST(Json, DoublesReadBackToTheSameBits) {
  const double awkward[] = {0.1,  -0.0,     1e-3, 1.0 / 3, 5e-324, 1.7976931348623157e308, 9007199254740993.0,
                            1e21, 123456.75};
  for (const double number : awkward) {
    const double back = parse(write(Value(number)), "text").as_number();
    EXPECT_EQ(std::memcmp(&back, &number, sizeof number), 0) << write(Value(number));
  }
}

TEST(Json, IntegersReadBackExactly) {
  for (const int64_t number : {int64_t{0}, int64_t{-1}, INT64_MAX, INT64_MIN, int64_t{1} << 53}) {
    EXPECT_EQ(parse(write(Value(number)), "text").as_integer(), number);
  }
}

TEST(Json, TextsReadBackWithEveryByte) {
  std::string all;
  for (int c = 1; c < 0x7f; ++c) all += static_cast<char>(c);
  all += "é 漢 😀";
  EXPECT_EQ(parse(write(Value(all)), "text").as_text(), all);
}

TEST(Json, WritesIndentedWithPlainListsOnOneLine) {
  const Value value = parse(R"({"a": {}, "b": [1, 2], "c": {"d": null}, "e": [[1], []], "f": []})", "text");
  EXPECT_EQ(write(value, 2), R"({
  "a": {},
  "b": [1, 2],
  "c": {
    "d": null
  },
  "e": [
    [1],
    []
  ],
  "f": []
})");
  EXPECT_EQ(parse(write(value, 2), "text"), value);
}

TEST(Json, AskingForTheWrongKindIsABrokenPromise) {
  EXPECT_THROW(Value("1").as_integer(), BrokenPromise);
  EXPECT_THROW(Value(1.5).as_integer(), BrokenPromise);
  EXPECT_THROW(Value(1).as_text(), BrokenPromise);
  EXPECT_THROW(Value(1).as_boolean(), BrokenPromise);
  EXPECT_THROW(Value().as_number(), BrokenPromise);
  EXPECT_THROW(Value(1).find("x"), BrokenPromise);
  EXPECT_THROW(write(Value(std::numeric_limits<double>::infinity())), BrokenPromise);
}

}  // namespace shoal::json
