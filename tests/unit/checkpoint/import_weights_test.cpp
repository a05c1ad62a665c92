#include "checkpoint/import_weights.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/run_folder.h"
#include "checkpoint/state_reader.h"
#include "temp_folder.h"
#include "training/outcome.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Counting : public ValueSource {
 public:
  explicit Counting(float first) : first_(first) {}
  void read(int64_t begin, int64_t numel, float* values) const override {
    for (int64_t i = 0; i < numel; ++i) values[i] = first_ + static_cast<float>(begin + i);
  }

 private:
  float first_;
};

TEST(ImportWeights, MakesACheckpointOfWeightsAlone) {
  const TempFolder temp;
  const at::Tensor tied = at::zeros({3, 2}).set_requires_grad(true), other = at::zeros({5}).set_requires_grad(true);
  const std::vector<Unit> units = {
      {"embed", {{"wte", tied, 0, false, std::make_shared<Counting>(10.0f)}}},
      {"head", {{"bias", other, 0, false, std::make_shared<Counting>(0.5f)}, {"head.weight", tied}}}};
  const std::string path = import_weights(units, {temp / "run", "{\"model_type\": \"llama\"}"});
  EXPECT_EQ(path, temp / "run/step-00000000");
  StateReader reader(path);
  const Manifest& manifest = reader.manifest();
  EXPECT_TRUE(manifest.weights_only);
  EXPECT_THAT(manifest.states, ElementsAre(StateKind::weight));
  EXPECT_EQ(manifest.extra.at("model_config"), "{\"model_type\": \"llama\"}");
  ASSERT_EQ(manifest.params.size(), 2u);
  EXPECT_THAT(manifest.params[0].aliases, ElementsAre("head.weight"));
  std::vector<float> values(5);
  reader.read(1, StateKind::weight, 0, 5, values.data());
  EXPECT_THAT(values, ElementsAre(0.5f, 1.5f, 2.5f, 3.5f, 4.5f));
  reader.read(0, StateKind::weight, 2, 4, values.data());
  EXPECT_EQ(values[0], 12.0f);
}

TEST(ImportWeights, AFolderWithCheckpointsIsRefusedAndStaysAsItWas) {
  const TempFolder temp;
  const std::vector<Unit> units = {{"embed", {{"wte", at::zeros({3}), 0, false, std::make_shared<Counting>(1.0f)}}}};
  const std::string folder = temp / "run/checkpoints";
  PendingCheckpoint(folder, 7).publish(write_manifest({}));
  for (const std::string& named : {folder, temp / "run"}) {
    EXPECT_EQ(shoal::testing::message_of([&] {
                import_weights(units, {named, ""});
              }),
              "[checkpoint import] " + folder + " holds step-00000007 already. Name a folder without checkpoints.");
  }
  EXPECT_THAT(shoal::testing::names_of(folder), ElementsAre("latest", "step-00000007"));
  EXPECT_EQ(shoal::testing::text_of_file(folder + "/latest"), "step-00000007\n");
}

TEST(ImportWeights, AParameterWithoutValuesIsNamed) {
  const TempFolder temp;
  const std::vector<Unit> units = {{"embed", {{"wte", at::zeros({3})}}}};
  EXPECT_THAT(shoal::testing::message_of([&] {
                import_weights(units, {temp.path(), ""});
              }),
              HasSubstr("wte has no source"));
}

}  // namespace
}  // namespace shoal::checkpoint
