#include "checkpoint/stored_pieces.h"

#include <gmock/gmock.h>

namespace shoal {

TEST(StoredPieces, AreFilledFromTheirParameter) {
  const FillValues fill = [](const std::string& name, int64_t begin, int64_t numel, float* out) {
    for (int64_t i = 0; i < numel; ++i) out[i] = static_cast<float>(begin + i) + (name == "plain" ? 1000 : 0);
  };
  const PiecedTensors made =
      in_pieces({{"whole", "", {3, 2, 2}}, {"plain", "", {2}}}, fill,
                {{"whole", {{"a.0", {2, 2}, 0}, {"a.1", {2, 2}, 4}, {"a.2", {2, 2}, 8}}}, {"other", {{"b", {1}, 0}}}});
  std::vector<std::string> names;
  for (const SafeTensor& tensor : made.tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ::testing::ElementsAre("a.0", "a.1", "a.2", "plain"));
  EXPECT_EQ(made.tensors[1].shape, (std::vector<int64_t>{2, 2}));
  float values[2] = {};
  made.fill("a.1", 1, 2, values);
  EXPECT_THAT(values, ::testing::ElementsAre(5, 6));
  made.fill("plain", 0, 2, values);
  EXPECT_THAT(values, ::testing::ElementsAre(1000, 1001));
}

}  // namespace shoal
