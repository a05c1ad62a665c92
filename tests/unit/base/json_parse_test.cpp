#include <gtest/gtest.h>

#include "base/json.h"
#include "shoal/error.h"

namespace shoal::json {

static std::string mistake_in(std::string_view text) {
  try {
    parse(text, "file");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JsonParse, AcceptsCommentsTrailingCommasAndBareKeys) {
  const Value value = parse(R"(# first
    { // second
      "a": 1, /* third
      */ b-2: [1, 2,], # fourth
      c_3: {x: "//", y: "#"},
    } // the end)",
                            "text");
  EXPECT_EQ(write(value), R"({"a": 1, "b-2": [1, 2], "c_3": {"x": "//", "y": "#"}})");
}

TEST(JsonParse, RememberWhereKeysAndValuesStand) {
  const Value value = parse("\xef\xbb\xbf{\r\n  \"é\": 1, \"b\":\n true}", "text");
  const Object& members = value.as_object();
  EXPECT_EQ(members[0].mark.line, 2);
  EXPECT_EQ(members[0].mark.column, 3);
  EXPECT_EQ(members[0].value.mark.column, 8);  // characters, not bytes
  EXPECT_EQ(members[1].mark.line, 2);
  EXPECT_EQ(members[1].value.mark.line, 3);
  EXPECT_EQ(members[1].value.mark.column, 2);
}

TEST(JsonParse, NumbersAreIntegersWhenTheyAreWhole) {
  EXPECT_EQ(parse("5e8", "text").as_integer(), 500'000'000);
  EXPECT_EQ(parse("-3.0", "text").as_integer(), -3);
  EXPECT_EQ(parse("9223372036854775807", "text").as_integer(), INT64_MAX);
  EXPECT_EQ(parse("1.5e1", "text").as_integer(), 15);
  EXPECT_FALSE(parse("9223372036854775808", "text").is_integer());
  EXPECT_FALSE(parse("1e300", "text").is_integer());
  EXPECT_FALSE(parse("0.5", "text").is_integer());
  EXPECT_EQ(parse("0", "text").as_integer(), 0);
}

TEST(JsonParse, UnderstandsEscapes) {
  EXPECT_EQ(parse(R"("\"\\\/\b\f\n\r\tA\u0041\u00e9\u6f22\ud83d\ude00")", "text").as_text(), "\"\\/\b\f\n\r\tAAé漢😀");
}

TEST(JsonParse, SyntaxErrorsSayWhatWasExpectedWhere) {
  EXPECT_EQ(mistake_in("{\n  \"a\" 1}"),
            "[file line 2, column 7] expected ':' after the key \"a\" but found '1'. "
            "Correct the text there.");
  EXPECT_EQ(mistake_in("{\"a\": }"),
            "[file line 1, column 7] expected the value of \"a\" but found '}'. Correct the text there.");
  EXPECT_EQ(mistake_in("{\"a\": 1\n \"b\": 2}"),
            "[file line 2, column 2] expected ',' or '}' but found '\"'. Correct the text there.");
  EXPECT_EQ(mistake_in("[1 2]"), "[file line 1, column 4] expected ',' or ']' but found '2'. Correct the text there.");
  EXPECT_EQ(mistake_in("{\"a\": 1"),
            "[file line 1, column 8] expected ',' or '}' but found the end of the text. Correct the text there.");
  EXPECT_EQ(mistake_in("{,}"), "[file line 1, column 2] expected a key or '}' but found ','. Correct the text there.");
  EXPECT_EQ(mistake_in(""), "[file] is empty. Write a JSON object there.");
  EXPECT_EQ(mistake_in(" \r\n"), "[file] is empty. Write a JSON object there.");
  EXPECT_EQ(mistake_in(std::string_view("\xff\xfe{\0}\0", 6)), "[file] is in UTF-16. Save it as UTF-8.");
  EXPECT_EQ(mistake_in("{} {}"),
            "[file line 1, column 4] expected the end of the text but found '{'. Correct the text there.");
  EXPECT_EQ(mistake_in("[\"ab\nc\"]"), "[file line 1, column 2] this text is never closed. End it with \".");
  EXPECT_EQ(mistake_in("[1] /* x"), "[file line 1, column 5] this comment is never closed. End it with */.");
  EXPECT_EQ(mistake_in("[-]"), "[file line 1, column 3] expected a digit but found ']'. Correct the text there.");
  EXPECT_EQ(mistake_in("[1.]"), "[file line 1, column 4] expected a digit but found ']'. Correct the text there.");
  EXPECT_EQ(mistake_in("[010]"), "[file line 1, column 2] a number does not begin with 0. Drop the leading zeros.");
  EXPECT_EQ(mistake_in("[1e999]"),
            "[file line 1, column 2] 1e999 does not fit a double. Give a number between 1e-308 and 1e308.");
  EXPECT_EQ(mistake_in("[True]"), "[file line 1, column 2] True is not JSON. Write true, false, null or a number.");
  EXPECT_EQ(mistake_in("['a']"), "[file line 1, column 2] single quotes are not JSON. Put text in double quotes.");
  EXPECT_EQ(mistake_in(R"(["\q"])"),
            "[file line 1, column 4] expected one of \" \\ / b f n r t u after a backslash but found 'q'. "
            "Correct the text there.");
  EXPECT_EQ(mistake_in(R"(["\u12g4"])"),
            "[file line 1, column 7] expected four hexadecimal digits but found 'g4'. Correct the text there.");
  EXPECT_EQ(mistake_in(R"(["\ud800x"])"),
            "[file line 1, column 9] expected the second half of a surrogate pair, \\uDC00 to "
            "\\uDFFF but found 'x'. Correct the text there.");
  EXPECT_EQ(mistake_in("[\"\x01\"]").substr(0, 54), "[file line 1, column 3] expected a printable character");
}

static std::string hjson(std::string_view text) {
  try {
    return write(parse(text, "file", nullptr, Syntax::hjson));
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(JsonParse, HjsonLeavesOutBracesCommasAndQuotes) {
  EXPECT_EQ(hjson("a: 1\nb: two words  \n\n# three\nc: {\n  d: true // four\n  e: [\n 1\n x-1\n]\n}\n"),
            R"({"a": 1, "b": "two words", "c": {"d": true, "e": [1, "x-1"]}})");
  EXPECT_EQ(hjson("{a: 1, b: 2}"), R"({"a": 1, "b": 2})");
  EXPECT_EQ(hjson("{path: /local/x:y\r\nn: null\r\n}"), R"({"path": "/local/x:y", "n": null})");
  EXPECT_EQ(hjson(R"({"a": 'it\'s', 'b': "x"})"), R"({"a": "it's", "b": "x"})");
  EXPECT_EQ(hjson("a: 7b-chat\nb: 2026-11-18\nc: true story\nd: 1e3\ne: 0x10\nf: nullable"),
            R"({"a": "7b-chat", "b": "2026-11-18", "c": "true story", "d": 1000, "e": "0x10", "f": "nullable"})");
  EXPECT_EQ(hjson("a:\n  '''\n  one\n    two\n  '''\nb: 1"), R"({"a": "one\n  two", "b": 1})");
  EXPECT_EQ(hjson("[1]"), "[1]");
}

TEST(JsonParse, HjsonTextsThatNobodyMeansAreErrors) {
  EXPECT_EQ(
      hjson("{a: tru, b: 1}"),
      "[file line 1, column 5] a text without quotes goes to the end of its line, and here that is \"tru, b: 1}\". "
      "Put the text in quotes.");
  EXPECT_NE(hjson("type: AdamW # mine").find("goes to the end of its line"), std::string::npos);
  EXPECT_EQ(hjson("a: True"), "[file line 1, column 4] True is not JSON. Write true, false, null or a number.");
  EXPECT_EQ(hjson("a: 'b"), "[file line 1, column 4] this text is never closed. End it with '.");
  EXPECT_EQ(hjson("a: '''b"), "[file line 1, column 4] this text is never closed. End it with '''.");
  EXPECT_EQ(
      hjson("{\"a\": 1 \"b\": 2}"),
      "[file line 1, column 7] a text without quotes goes to the end of its line, and here that is \"1 \"b\": 2}\". "
      "Put the text in quotes.");
  EXPECT_EQ(hjson("{a: {b: 1}"),
            "[file line 1, column 11] expected ',' or '}' but found the end of the text. Correct the text there.");
  EXPECT_EQ(hjson("a: 1\na: 2"),
            "[file line 2, column 1] the key \"a\" is given twice, first on line 1. Remove one of them.");
}

TEST(JsonParse, HjsonReadsJsonAsItIs) {
  const std::string text = R"({"a": [1, -2.5e3, "x\u0041", {"b": null}], "c": true, "d": "e, f"})";
  EXPECT_EQ(hjson(text), write(parse(text, "file")));
}

TEST(JsonParse, DuplicateKeysNameBothLines) {
  const char* text = "{\"a\": {\n\"b\": 1,\n\"b\": 2},\n \"a\": 3}";
  EXPECT_EQ(mistake_in(text),
            "[file line 3, column 1] the key \"a.b\" is given twice, first on line 2. Remove one of them.");
  std::vector<Duplicate> duplicates;
  EXPECT_EQ(write(parse(text, "file", &duplicates)), R"({"a": {"b": 1}})");
  ASSERT_EQ(duplicates.size(), 2u);
  EXPECT_EQ(duplicates[0].path, "a.b");
  EXPECT_EQ(duplicates[1].path, "a");
  EXPECT_EQ(duplicates[1].first.line, 1);
  EXPECT_EQ(duplicates[1].second.line, 4);
}

TEST(JsonParse, DeepNestingIsAnErrorAndNotACrash) {
  EXPECT_EQ(mistake_in(std::string(200, '[') + std::string(200, ']')), "");
  EXPECT_NE(mistake_in(std::string(100'000, '[')).find("nested deeper than 200 levels"), std::string::npos);
}

TEST(JsonParse, EveryPrefixOfATextIsAnError) {
  const std::string text = R"({"a": [1, -2.5e3, "x\u0041", {"b": null}], "c": true})";
  for (size_t length = 0; length < text.size(); ++length) EXPECT_NE(mistake_in(text.substr(0, length)), "") << length;
  EXPECT_EQ(mistake_in(text), "");
}

}  // namespace shoal::json
