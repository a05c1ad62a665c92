#include "models/lora_base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "message_of.h"
#include "models/open_model.h"
#include "unit/models/tiny_model.h"

namespace shoal::models {

using ::testing::HasSubstr;
using testing::message_of;
using ::testing::StartsWith;

TEST(LoraBase, ReadsBackWhatWasPut) {
  const LoraBase base = {.spec = parse_lora("r=2,alpha=4,targets=q_proj,dropout=0.1"),
                         .model = "/models/it's \"here\"",
                         .seed = 18446744073709551615u,
                         .digest = "0123456789abcdef"};
  Extra extra = {{"other", "stays"}};
  EXPECT_FALSE(find_lora(extra, "x"));
  put_lora(base, extra);
  const auto found = find_lora(extra, "x");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->spec, base.spec);
  EXPECT_EQ(found->model, base.model);
  EXPECT_EQ(found->seed, base.seed);
  EXPECT_EQ(found->digest, base.digest);
  EXPECT_EQ(extra.at("other"), "stays");
  EXPECT_EQ(extra.at("lora"), "r=2,alpha=4,targets=q_proj,dropout=0.1");
  extra["lora_base"] = R"({"model": "m", "seed": "1"})";
  EXPECT_THAT(message_of([&] { find_lora(extra, "checkpoint c"); }),
              StartsWith("[checkpoint c] says of its base no \"digest\""));
  extra["lora_base"] = R"({"model": "m", "seed": "-1", "digest": "0"})";
  EXPECT_THAT(message_of([&] { find_lora(extra, "checkpoint c"); }), HasSubstr("\"-1\" is no seed"));
}

TEST(LoraBase, HasANameThatLasts) {
  EXPECT_EQ(lasting_name("llama-tiny"), "builtin:llama-tiny");
  EXPECT_EQ(lasting_name("builtin:llama-tiny"), "builtin:llama-tiny");
  EXPECT_EQ(lasting_name("some/./folder"), (std::filesystem::current_path() / "some/folder").string());
  EXPECT_EQ(lasting_name("/some/folder/config.json"), "/some/folder");
}

TEST(LoraBase, OtherWeightsAreRefused) {
  const testing::TempFolder folder;
  testing::put_file(folder / "config.json", testing::tiny_llama_json());
  const auto world = make_single_group();
  LoraBase base = {.spec = {.rank = 2, .alpha = 4}, .model = folder.path(), .seed = 3, .digest = ""};
  const auto opened = open_lora_model(base, "", "place");
  const std::string refused = message_of([&] { check_base(base, *opened, "place", *world); });
  EXPECT_THAT(refused, StartsWith("[place] " + folder.path() + " has other weights than those that the adapters were"));
  base.digest = refused.substr(refused.find("digest ") + 7, 16);
  check_base(base, *opened, "place", *world);
  base.seed = 4;
  EXPECT_THAT(message_of([&] { check_base(base, *open_lora_model(base, "", "place"), "place", *world); }),
              HasSubstr("has other weights"));
  base.model = folder / "gone";
  EXPECT_THAT(message_of([&] { open_lora_model(base, "", "place"); }), HasSubstr("gone, which is not there now"));
  base.seed = 3;
  check_base(base, *open_lora_model(base, folder.path(), "place"), "place", *world);
}

}  // namespace shoal::models
