#include "kernels/isa.h"

#include <gtest/gtest.h>

#include "shoal/error.h"

namespace shoal::kernels {
namespace {

std::string message_of(const char* wanted) {
  try {
    choose_isa(wanted);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Isa, ReferenceIsAlwaysUsable) {
  EXPECT_EQ(why_unusable(Isa::reference), "");
  EXPECT_EQ(choose_isa("reference"), Isa::reference);
  EXPECT_EQ(kernels_of(Isa::reference).isa, Isa::reference);
}

TEST(Isa, PicksAVectorVersionBeforeTheReference) {
  bool has_vectors = false;
  for (Isa isa : kEveryIsa) has_vectors |= isa != Isa::reference && why_unusable(isa).empty();
  EXPECT_EQ(choose_isa(nullptr) != Isa::reference, has_vectors);
  EXPECT_EQ(choose_isa(""), choose_isa(nullptr));
}

TEST(Isa, UnknownNameIsAnErrorThatListsTheUsableOnes) {
  const std::string message = message_of("sse9");
  EXPECT_NE(message.find("\"sse9\""), std::string::npos) << message;
  EXPECT_NE(message.find("reference"), std::string::npos) << message;
}

TEST(Isa, NamedVersionThatCannotRunIsAnErrorWithTheReason) {
  int unusable_count = 0;
  for (Isa isa : kEveryIsa) {
    const std::string reason = why_unusable(isa);
    if (reason.empty()) {
      EXPECT_EQ(choose_isa(std::string(isa_name(isa)).c_str()), isa);
    } else {
      ++unusable_count;
      EXPECT_NE(message_of(std::string(isa_name(isa)).c_str()).find(reason), std::string::npos);
      EXPECT_THROW(kernels_of(isa), Error);
    }
  }
  EXPECT_GE(unusable_count, 1);  // no machine has both NEON and AVX
}

}  // namespace
}  // namespace shoal::kernels
