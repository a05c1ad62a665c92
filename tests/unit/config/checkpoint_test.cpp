#include <gtest/gtest.h>

#include "unit/config/samples.h"

namespace shoal::config {

TEST(Checkpoint, ChecksAreAcceptedAndOtherFormatsRefused) {
  EXPECT_EQ(parse_members(R"("checkpoint": {"tag_validation": "fail"})").notices,
            std::vector<std::string>{
                "checkpoint.tag_validation has no effect: ranks that save different steps always stop with an error."});
  EXPECT_EQ(mistakes_of(R"("checkpoint": {"parallel_write": {"pipeline_stage": true}, "load_universal": true})"),
            "[config] 2 mistakes:\n"
            "  [line 1, checkpoint.load_universal] true is not supported yet. Remove the key or set it to false.\n"
            "  [line 1, checkpoint.parallel_write.pipeline_stage] true is not supported yet. Remove the key or set it "
            "to false.");
}

}  // namespace shoal::config
