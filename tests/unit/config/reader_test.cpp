#include "config/reader.h"

#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Reader, UnknownKeysNameTheNearestOrTheirHome) {
  EXPECT_EQ(mistakes_of(R"("gradient_cliping": 1)"),
            "[line 1, gradient_cliping] unknown key. Did you mean \"gradient_clipping\"?");
  EXPECT_EQ(mistakes_of(R"("zero_optimization": {"aio": {}})"),
            "[line 1, zero_optimization.aio] unknown key. It belongs to the top level.");
  EXPECT_EQ(mistakes_of(R"("stage": 3)"), "[line 1, stage] unknown key. It belongs to \"zero_optimization\".");
  EXPECT_EQ(mistakes_of(R"("pin_memory": true)"),
            "[line 1, pin_memory] unknown key. It belongs to \"zero_optimization.offload_param\" or "
            "\"zero_optimization.offload_optimizer\".");
  EXPECT_EQ(mistakes_of(R"("zero_optimization": {"grad_hooks": true})"),
            "[line 1, zero_optimization.grad_hooks] unknown key. docs/config.md lists the keys that may stand here.");
  EXPECT_EQ(mistakes_of(R"("comms_logger": {"enabled": false, "job": "x"})"),
            "[line 1, comms_logger.job] unknown key. docs/config.md lists the keys that may stand here.");
}

TEST(Reader, BothSpellingsOfAKeyAreAContradiction) {
  EXPECT_EQ(mistakes_of("\"bf16\": {},\n\"bfloat16\": {}"),
            "[line 2, bfloat16] another name of \"bf16\", which is given too (line 1). Remove one of them.");
}

TEST(Reader, ExplainsAWordForOtherReaders) {
  const Section& top = *table().section("");
  EXPECT_EQ(explain_unknown(table(), top, "gradient_cliping"), "Did you mean \"gradient_clipping\"?");
  EXPECT_EQ(explain_unknown(table(), top, "stage"), "It belongs to \"zero_optimization\".");
}

TEST(Reader, SectionsAreObjects) {
  EXPECT_EQ(mistakes_of(R"("fp16": true)"), "[line 1, fp16] true is not an object. Give an object, { ... }.");
  EXPECT_EQ(mistakes_of(R"("optimizer": {"params": []})"),
            "[line 1, optimizer.params] [] is not an object. Give an object, { ... }.");
  EXPECT_EQ(mistakes_of(R"("fp16": null)"), "[line 1, fp16] null is not an object. Give an object, { ... }.");
}

TEST(Reader, RulesThatDependOnAMistakeAreSilent) {
  EXPECT_EQ(mistakes_of(R"("zero_optimization": {"stage": 7, "offload_param": {"device": "cpu"}})"),
            "[line 1, zero_optimization.stage] 7 is not a ZeRO stage. Use 0, 1, 2 or 3.");
}

TEST(Reader, KeysComeBeforeSectionsSoThatTheTypeMayStandLast) {
  EXPECT_EQ(parse_members(R"("optimizer": {"params": {"momentum": 0.5}, "type": "SGD"})").optimizer.momentum, 0.5);
}

}  // namespace shoal::config
