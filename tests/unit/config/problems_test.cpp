#include "config/problems.h"

#include <gtest/gtest.h>

#include "shoal/error.h"

namespace shoal::config {

TEST(Problems, AreListedByLineThenOverrideThenTheRest) {
  Problems problems({"a=1", "b=2"});
  EXPECT_TRUE(problems.empty());
  EXPECT_NO_THROW(problems.throw_if_any("config"));
  problems.add({}, "batch", "missing.");
  problems.add(override_mark(1), "b", "wrong.");
  problems.add(override_mark(0), "", "odd.");
  problems.add({12, 1}, "x", "twelve.");
  problems.add({3, 1}, "y", "three.");
  problems.add({3, 9}, "z", "three again.");
  try {
    problems.throw_if_any("config f.json");
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[config f.json] 6 mistakes:\n"
                 "  [line 3, y] three.\n"
                 "  [line 3, z] three again.\n"
                 "  [line 12, x] twelve.\n"
                 "  [override a=1] odd.\n"
                 "  [override b=2, b] wrong.\n"
                 "  [batch] missing.");
  }
}

}  // namespace shoal::config
