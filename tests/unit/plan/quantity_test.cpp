#include "plan/quantity.h"

#include <gtest/gtest.h>

#include "shoal/error.h"

namespace shoal {
namespace {

TEST(Quantity, BytesAreReadWithDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_nbytes("1B", "x"), 1u);
  EXPECT_EQ(parse_nbytes("24GB", "x"), 24'000'000'000u);
  EXPECT_EQ(parse_nbytes("80GiB", "x"), size_t{80} << 30);
  EXPECT_EQ(parse_nbytes("1.5 KiB", "x"), 1536u);
  EXPECT_EQ(parse_nbytes("2TiB", "x"), size_t{2} << 40);
}

TEST(Quantity, BytesWithoutAUnitOrWithANonsensicalOneAreRefused) {
  for (const char* text : {"", "80", "GiB", "-1GiB", "0GB", "80Gib", "1e30TB", "nanGB", "infGB"}) {
    EXPECT_THROW(parse_nbytes(text, "x"), Error) << text;
  }
  try {
    parse_nbytes("80G", "--gpu-memory");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[--gpu-memory] \"80G\" ends with a unit that is not known. Use B, kB, MB, GB, TB, KiB, MiB, GiB or "
                 "TiB.");
  }
}

TEST(Quantity, CountsAreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_count("7e9", "x"), 7'000'000'000);
  EXPECT_EQ(parse_count("7B", "x"), 7'000'000'000);
  EXPECT_EQ(parse_count("1.5M", "x"), 1'500'000);
  EXPECT_EQ(parse_count("12", "x"), 12);
  for (const char* text : {"", "B", "0", "-7e9", "7 billion", "1e99"}) EXPECT_THROW(parse_count(text, "x"), Error);
}

TEST(Quantity, DecimalBytesArePrintedAsPapersDo) {
  EXPECT_EQ(format_decimal_nbytes(0), "0 B");
  EXPECT_EQ(format_decimal_nbytes(999), "999 B");
  EXPECT_EQ(format_decimal_nbytes(38.5e9), "38.50 GB");
  EXPECT_EQ(format_decimal_nbytes(26.25e9), "26.25 GB");
  EXPECT_EQ(format_decimal_nbytes(1.12e15), "1120.00 TB");
}

}  // namespace
}  // namespace shoal
