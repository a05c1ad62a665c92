#include "comm/handle.h"

#include <gtest/gtest.h>

#include "shoal/error.h"

namespace shoal {
namespace {

TEST(Handle, OfNothingIsDone) {
  Handle handle;
  EXPECT_TRUE(handle.done());
  handle.wait();
}

TEST(Handle, KeepsItsErrorForEveryWait) {
  auto state = std::make_shared<Handle::State>();
  Handle handle(state);
  EXPECT_FALSE(handle.done());
  state->finish(std::make_exception_ptr(Error("test", "broken")));
  EXPECT_TRUE(handle.done());
  EXPECT_THROW(handle.wait(), Error);
  EXPECT_THROW(handle.wait(), Error);
}

TEST(Handle, LetsGoOfWhatItKeptBeforeItIsDone) {
  auto state = std::make_shared<Handle::State>();
  bool done_when_dropped = true;
  state->keep = std::shared_ptr<const void>(nullptr, [&](const void*) { done_when_dropped = Handle(state).done(); });
  state->finish(nullptr);
  EXPECT_FALSE(done_when_dropped);
  EXPECT_TRUE(Handle(state).done());
}

}  // namespace
}  // namespace shoal
