#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Checkpoint, ChecksAreAcceptedAndOtherFormatsRefused) {
  EXPECT_EQ(parse_members(R"("checkpoint": {"tag_validation": "fail"})").notices,
            std::vector<std::string>{
                "checkpoint.tag_validation has no effect: ranks that save different steps always stop with an error."});
  EXPECT_EQ(
      mistakes_of(R"("checkpoint": {"parallel_write": {"pipeline_stage": true}, "load_universal": true})"),
      "[line 1, checkpoint.load_universal] true is carried out by the package deepspeed only. Load the checkpoint "
      "there.");
  EXPECT_EQ(
      mistakes_of(R"("checkpoint": {"async_save": true})"),
      "[line 1, checkpoint.async_save] true is not supported: save_checkpoint of the package deepspeed writes before "
      "it returns. Remove the key; saves behind training are `shoal train --save-every` and save_later of the "
      "package shoal.");
}

}  // namespace shoal::config
