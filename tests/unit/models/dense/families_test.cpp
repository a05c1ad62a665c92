#include "models/dense/families.h"

#include <gtest/gtest.h>

#include <set>

namespace shoal::models {

TEST(DenseFamilies, AreFoundByTheirModelType) {
  std::set<std::string> types, architectures;
  for (const DenseFamily& family : dense_families()) {
    EXPECT_EQ(find_dense_family(family.type.model_type), &family);
    types.insert(family.type.model_type);
    architectures.insert(family.type.architecture);
  }
  EXPECT_EQ(types.size(), dense_families().size());
  EXPECT_EQ(architectures.size(), dense_families().size());
  EXPECT_EQ(find_dense_family("deepseek_v3"), nullptr);
}

TEST(DenseFamilies, NameWhatTheyHave) {
  for (const DenseFamily& family : dense_families()) {
    const DenseConfig& switches = family.switches;
    EXPECT_EQ(*family.names.attention_norm != 0, switches.norm_before) << family.type.model_type;
    EXPECT_EQ(*family.names.ffn_norm != 0, switches.norm_before) << family.type.model_type;
    EXPECT_EQ(*family.names.attention_after != 0, switches.norm_after) << family.type.model_type;
    EXPECT_EQ(*family.names.ffn_after != 0, switches.norm_after) << family.type.model_type;
    EXPECT_EQ(*family.names.positions != 0, switches.position_offset >= 0) << family.type.model_type;
    EXPECT_EQ(family.full_every > 0, family.windows == Windows::but_every) << family.type.model_type;
  }
}

}  // namespace shoal::models
