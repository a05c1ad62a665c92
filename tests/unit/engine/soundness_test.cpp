#include "engine/soundness.h"

#include <gtest/gtest.h>

#include "message_of.h"

namespace shoal {

using testing::message_of;

TEST(Soundness, LetsASoundEngineGoOn) {
  const Soundness soundness;
  EXPECT_FALSE(soundness.is_lost());
  EXPECT_NO_THROW(soundness.check("step"));
}

TEST(Soundness, SaysWhereAndWhyNothingGoesOn) {
  Soundness step, backward, pass;
  step.step_failed();
  EXPECT_EQ(message_of([&] { step.check("run"); }),
            "[run] an earlier step failed half-way, and its weights are of two steps. Resume from a checkpoint.");
  backward.backward_failed("no memory");
  EXPECT_EQ(message_of([&] { backward.check("step"); }),
            "[step] an earlier backward failed half-way, and its gradients are incomplete: no memory. Destroy the "
            "engine and resume from a checkpoint.");
  pass.pass_failed("an evaluation could not begin: stop.");
  EXPECT_EQ(message_of([&] { pass.check("evaluate"); }),
            "[evaluate] an evaluation could not begin: stop. Destroy the engine and resume from a checkpoint.");
}

TEST(Soundness, KeepsTheFirstFailure) {
  Soundness soundness;
  soundness.step_failed();
  const std::string first = message_of([&] { soundness.check("run"); });
  soundness.backward_failed("it never came to its end.");  // as what follows from the first
  EXPECT_EQ(message_of([&] { soundness.check("run"); }), first);
}

// After a failed step the other ranks may wait in gathers, which this rank can still take part in.
TEST(Soundness, ATornStepLeavesGathersAsTheyAre) {
  Soundness step, backward, both;
  step.step_failed();
  EXPECT_FALSE(step.gathers_are_lost());
  backward.backward_failed("no memory");
  EXPECT_TRUE(backward.gathers_are_lost());
  both.step_failed();
  both.pass_failed("an evaluation could not begin: stop.");
  EXPECT_TRUE(both.gathers_are_lost());
}

}  // namespace shoal
