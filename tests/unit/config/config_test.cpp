#include "shoal/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "config_people_write.h"
#include "unit/config/samples.h"

namespace shoal::config {

// The defaults hold whatever the environment of the test run says.
[[maybe_unused]] static const int kCleanEnvironment = unsetenv("SHOAL_REPRODUCIBLE");

// Calls visit(section, key, type) for every key outside foreign sections, once for each type that takes it.
template <typename Visit>
void for_every_key(Visit visit) {
  for (const Section& section : table().sections()) {
    if (section.is_foreign) continue;
    for (const Key& key : section.keys) {
      if (key.fallback_by_type.empty()) visit(section, key, std::string());
      for (const auto& [type, fallback] : key.fallback_by_type) visit(section, key, type);
    }
  }
}

static Value at_path(const Value& root, std::string_view path) {
  const Value* home = &root;
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find('.'));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    home = home->find(name);
    if (home == nullptr) return Value("(absent)");
  }
  return *home;
}

TEST(Config, DefaultsInTheHeaderAreTheTables) { EXPECT_EQ(Config::from_text(R"({"train_batch_size": 1})"), Config{}); }

TEST(Config, EffectiveConfigReadsBackToTheSameConfig) { EXPECT_EQ(Config::from_text(Config{}.to_json()), Config{}); }

TEST(Config, PlacementFitIsPlacementAuto) {
  const auto placed = [](const char* word) {
    return Config::from_text(fmt::format(R"({{"train_batch_size": 1, "shoal": {{"placement": "{}"}}}})", word));
  };
  EXPECT_TRUE(placed("fit").shoal.auto_placement);
  EXPECT_EQ(placed("fit"), placed("auto"));
  EXPECT_FALSE(placed("config").shoal.auto_placement);
  EXPECT_EQ(at_path(json::parse(placed("fit").to_json(), "effective"), "shoal.placement"), Value("auto"));
  EXPECT_EQ(Config::from_text(placed("fit").to_json()), placed("auto"));
}

TEST(Config, EveryCarriedOutKeyReachesTheConfigAndReadsBack) {
  int count = 0;
  for_every_key([&](const Section& section, const Key& key, const std::string& type) {
    if (!key.binding.load) return;
    if (key.name == "adam_w_mode" && type == "AdamW") return;  // only true is accepted there
    if (key.path == "fp8.enabled") return;                     // wants bf16 beside it: fp8_test.cpp
    if (key.path.ends_with("_master_weights_and_grads") || key.path == "bf16.bf16_optimizer_states") {
      return;  // want the precision beside them: bf16_test.cpp, fp16_test.cpp
    }
    if (key.path == "shoal.placement") return;  // two words for one thing: above
    if (key.path.ends_with("hpz_partition_size") || key.path.find(".mics_") != std::string::npos ||
        key.path == "shoal.shard_size") {
      return;  // want a stage beside them: zero_test.cpp
    }
    if (key.path.find(".zero_quantized_") != std::string::npos || key.path.find("zeropp_loco") != std::string::npos ||
        key.path == "shoal.quantized_gradient_bits") {
      return;  // want a stage, or each other, beside them: quantized_test.cpp
    }
    const Value value = another_value(key, type);
    std::vector<std::string> spellings = key.aliases;
    spellings.push_back(key.name);
    for (const std::string& spelling : spellings) {
      const std::string text = text_with(section, spelling, value, type);
      SCOPED_TRACE(text);
      const Config config = Config::from_text(text);
      EXPECT_EQ(at_path(json::parse(config.to_json(), "effective"), key.path), value);
      EXPECT_EQ(Config::from_text(config.to_json()), config);
      // Cautions of the schedules are of two keys together; the others are of keys that do nothing when given alone.
      const bool useless = key.caution && !section.path.starts_with("scheduler");
      EXPECT_EQ(config.notices.size(), useless ? 1u : 0u);
      ++count;
    }
  });
  EXPECT_GT(count, 70);
}

TEST(Config, EveryKeyWithoutEffectGivesItsNoticeAndChangesNothing) {
  for_every_key([&](const Section& section, const Key& key, const std::string& type) {
    if (key.status != Status::no_effect) return;
    const std::string text = text_with(section, key.name, another_value(key, type), type);
    SCOPED_TRACE(text);
    const Config config = Config::from_text(text);
    ASSERT_GE(config.notices.size(), 1u);
    EXPECT_EQ(config.notices[0], key.path + " has no effect: " + key.reason + ".");
    const Config plain = Config::from_text(text_with(section, key.name, *key.fallback_of(type), type));
    EXPECT_EQ(config.to_json(), plain.to_json());
    // Written at its default it has no effect either, and says so.
    EXPECT_EQ(plain.notices, config.notices);
  });
}

TEST(Config, EveryRefusedKeyIsRefusedUnlessItIsOff) {
  int count = 0;
  for_every_key([&](const Section& section, const Key& key, const std::string& type) {
    if (key.status != Status::refused) return;
    const std::string text = text_with(section, key.name, another_value(key, type), type);
    const std::string mistakes = mistakes_of_text(text);
    EXPECT_TRUE(mistakes.starts_with("[config] 1 mistake:\n  [line 1, " + key.path + "] ")) << text << "\n" << mistakes;
    EXPECT_TRUE(mistakes.ends_with(".")) << mistakes;
    std::vector<Value> off = key.also_off;
    off.push_back(key.fallback);
    for (const Value& value : off) {
      EXPECT_EQ(mistakes_of_text(text_with(section, key.name, value, type)), "") << key.path;
    }
    ++count;
  });
  EXPECT_GT(count, 20);
}

TEST(Config, AutoIsAnErrorExactlyWhereTheTableSaysSo) {
  for_every_key([&](const Section& section, const Key& key, const std::string& type) {
    if (std::find(key.choices.begin(), key.choices.end(), "auto") != key.choices.end()) return;  // its own word
    const std::string mistakes = mistakes_of_text(text_with(section, key.name, "auto", type), {.total_steps = 7});
    if (key.accepts_auto()) {
      EXPECT_EQ(mistakes, "") << key.path;
    } else {
      EXPECT_NE(mistakes.find("[line 1, " + key.path + "] \"auto\" is not"), std::string::npos) << key.path << mistakes;
    }
  });
}

TEST(Config, TyposAreFoundInEverySection) {
  for (const Section& section : table().sections()) {
    if (section.is_open) continue;
    const std::string mistakes = mistakes_of_text(text_with(section, "wibble_wobble_wubble", 1));
    const std::string path = path_in(section.path, "wibble_wobble_wubble");
    EXPECT_NE(mistakes.find("[line 1, " + path + "] unknown key."), std::string::npos) << path << ": " << mistakes;
  }
}

TEST(Config, EveryKeyIsSuggestedForItsOwnTypo) {
  for_every_key([&](const Section& section, const Key& key, const std::string& type) {
    const std::string typo = key.name + "s_";
    const std::string mistakes = mistakes_of_text(text_with(section, typo, 1, type));
    EXPECT_NE(mistakes.find("unknown key. Did you mean \""), std::string::npos) << typo << ": " << mistakes;
  });
}

TEST(Config, ListsAllMistakesTogetherInTheOrderOfTheFile) {
  const std::string text = R"({
    // a config with something wrong on every line
    "train_batch_size": 10,
    "gradient_accumulation_steps": 4,
    "gradient_clipping": -1,
    "fp16": {"enabled": true, "hysteresis": 0},
    "bf16": {"enabled": true},
    "zero_optimization": {
      "stage": 4,
      "overlap_com": true,
      "reduce_bucket_size": 0,
      "stage3_prefetch_bucket_size": 5.5,
      "prefetch_bucket_size": 1,
    },
    "steps_per_print": "10",
    "steps_per_print": 20,
    "optimizer": {"type": "AdamV", "params": {"lr": 1}},
    "elasticity": {"enabled": true},
  })";
  EXPECT_EQ(mistakes_of_text(text, {.world_size = 2}),
            R"([config] 13 mistakes:
  [line 3, train_batch_size] 10 cannot be divided by 4 (accumulation) x 2 ranks. Give a multiple of 8, such as 8.
  [line 5, gradient_clipping] -1 is out of range. Give a number of at least 0.
  [line 6, fp16.hysteresis] 0 is out of range. Give an integer of at least 1 and at most 1000000000.
  [line 7, bf16.enabled] true, and fp16.enabled is true as well. Switch one of them off.
  [line 9, zero_optimization.stage] 4 is not a ZeRO stage. Use 0, 1, 2 or 3.
  [line 10, zero_optimization.overlap_com] unknown key. Did you mean "overlap_comm"?
  [line 11, zero_optimization.reduce_bucket_size] 0 elements is no size to cut gradients into. Give at least 1, or 5e8, the default.
  [line 12, zero_optimization.stage3_prefetch_bucket_size] 5.5 is not a whole number that fits 64 bits. Give an integer of at least 0.
  [line 13, zero_optimization.prefetch_bucket_size] another name of "stage3_prefetch_bucket_size", which is given too (line 12). Remove one of them.
  [line 15, steps_per_print] "10" is a text. Write 10 without quotes.
  [line 16, steps_per_print] given twice, first on line 15. Remove one of them.
  [line 17, optimizer.type] "AdamV" is not known. Did you mean "AdamW"? Give one of )" +
                optimizer_names() + R"(.
  [line 18, elasticity] not supported yet. Give the batch keys themselves; a checkpoint resumes on any number of ranks. Remove the section or set elasticity.enabled to false.)");
}

TEST(Config, ReadsAHuggingFaceConfigWithAutos) {
  const char* text = R"({
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16,
             "hysteresis": 2, "min_loss_scale": 1},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                  "warmup_num_steps": "auto", "total_num_steps": "auto"}},
    "zero_optimization": {
      "stage": 3, "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
      "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
      "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
      "stage3_gather_16bit_weights_on_model_save": true
    },
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false
  })";
  const Config config = Config::from_text(text, {.world_size = 4,
                                                 .hidden_size = 63,
                                                 .micro_batch_size = 2,
                                                 .accumulation_steps = 3,
                                                 .lr = 3e-4,
                                                 .weight_decay = 0.1,
                                                 .beta1 = 0.8,
                                                 .beta2 = 0.95,
                                                 .eps = 1e-6,
                                                 .gradient_clipping = 0.5,
                                                 .precision = Precision::bf16,
                                                 .total_steps = 100,
                                                 .warmup_steps = 10});
  EXPECT_EQ(config.batch, (BatchConfig{24, 2, 3}));
  EXPECT_EQ(config.precision, Precision::bf16);
  EXPECT_FALSE(config.fp16.enabled);
  EXPECT_EQ(config.gradient_clipping, 0.5);
  EXPECT_EQ(config.zero.reduce_bucket_size, 63 * 63);
  EXPECT_EQ(config.zero.prefetch_bucket_size, 3572);  // 0.9 x 3969 = 3572.1
  EXPECT_EQ(config.zero.param_persistence_threshold, 630);
  EXPECT_EQ(config.optimizer,
            (OptimizerConfig{.lr = 3e-4, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1}));
  const std::map<std::string, double> params = {
      {"warmup_min_lr", 0}, {"warmup_max_lr", 3e-4}, {"warmup_num_steps", 10}, {"total_num_steps", 100}};
  EXPECT_EQ(config.scheduler.params, params);
  EXPECT_EQ(config.notices.size(), 4u);
}

TEST(Config, PrecisionsHaveNames) {
  EXPECT_EQ(name_of(Precision::fp32), "fp32");
  EXPECT_EQ(name_of(Precision::bf16), "bf16");
  EXPECT_EQ(name_of(Precision::fp16), "fp16");
}

TEST(Config, AutosFallBackWhenNobodyKnowsBetter) {
  const Config config = parse_members(R"(
    "gradient_clipping": "auto", "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
    "zero_optimization": {"reduce_bucket_size": "auto", "prefetch_bucket_size": "auto",
                          "param_persistence_threshold": "auto"},
    "optimizer": {"params": {"lr": 0.25, "betas": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto", "total_num_steps": 5000}})");
  EXPECT_EQ(config.gradient_clipping, 1.0);
  EXPECT_EQ(config.precision, Precision::fp32);
  EXPECT_EQ(config.zero, ZeroConfig{});
  EXPECT_EQ(config.scheduler.params.at("warmup_max_lr"), 0.25);  // the optimizer's
}

TEST(Config, TheConfigPeopleWriteIsCarriedOut) {
  const Config config = Config::from_text(shoal::testing::kConfigPeopleWrite);
  EXPECT_EQ(config.zero.offload_optimizer.tier, Tier::host);
  EXPECT_EQ(config.zero.offload_param.tier, Tier::host);
  EXPECT_EQ(config.batch, (BatchConfig{256, 16, 16}));
  EXPECT_EQ(config.zero.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(config.zero.param_persistence_threshold, 1'000'000);
}

TEST(Config, SyntaxErrorsNameTheFileLineAndColumn) {
  EXPECT_EQ(
      mistakes_of_text("{\n  \"fp16\": {enabled: tru}\n}"),
      "[config line 2, column 21] a text without quotes goes to the end of its line, and here that is \"tru}\". Put "
      "the text in quotes.");
  EXPECT_EQ(mistakes_of_text("[1]"), "[config] the text is not a JSON object. It begins with { and ends with }.");
}

TEST(Config, ReadsHjson) {
  const Config config = Config::from_text(R"(
    // no outer braces, no commas, few quotes
    train_batch_size: 8
    bf16: {enabled: true}
    zero_optimization: {
      stage: 3  # sharded
      offload_optimizer: {
        device: nvme
        nvme_path: /local/nvme 0
      }
    }
    optimizer: {type: "AdamW", params: {lr: 3e-4}}
  )");
  EXPECT_EQ(config.zero.stage, 3);
  EXPECT_EQ(config.zero.offload_optimizer.nvme_path, "/local/nvme 0");
  EXPECT_EQ(config.optimizer.lr, 3e-4);
  EXPECT_EQ(
      mistakes_of_text("train_batch_size: 8\nzero_optimization: {\n  stage: four\n}"),
      "[config] 1 mistake:\n  [line 3, zero_optimization.stage] \"four\" has the wrong type. Give an integer of at "
      "least 0 and at most 3.");
}

TEST(Config, MessagesNameTheKeyThatWasWritten) {
  EXPECT_EQ(
      parse_members(R"("zero_optimization": {"stage3_max_reuse_distance": 5})").notices.at(0),
      "zero_optimization.stage3_max_reuse_distance has no effect: a unit is released when its last use in forward "
      "or backward is over.");
  EXPECT_EQ(
      mistakes_of(R"("zero_optimization": {"stage3_max_live_parameters": "auto"})"),
      "[line 1, zero_optimization.stage3_max_live_parameters] \"auto\" is not understood here. Give an integer of "
      "at least 0.");
}

TEST(Config, ReadsAFileAndNamesItInErrors) {
  const std::string path = ::testing::TempDir() + "shoal_config_test.json";
  std::ofstream(path) << with_batch(R"("zero_optimization": {"stage": 2})");
  EXPECT_EQ(Config::from_file(path).zero.stage, 2);
  EXPECT_EQ(Config::from_file(path, {}, {"zero_optimization.stage=1"}).zero.stage, 1);
  std::ofstream(path) << "{\"stage\": 2}";
  try {
    Config::from_file(path);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.place(), "config " + path);
  }
  std::filesystem::remove(path);
  EXPECT_THROW(Config::from_file(path), Error);
}

TEST(Config, AWorldOfNoRanksIsAMistake) {
  for (const int world : {0, -2}) {
    EXPECT_EQ(mistakes_of("", {.world_size = world}),
              "[config world_size] " + std::to_string(world) + " is no number of ranks. Give at least 1.");
  }
}

TEST(Config, TheEnvironmentSwitchesReproducibleOn) {
  setenv("SHOAL_REPRODUCIBLE", "1", 1);
  EXPECT_TRUE(parse_members(R"("shoal": {"reproducible": false})").shoal.reproducible);
  setenv("SHOAL_REPRODUCIBLE", "0", 1);
  EXPECT_FALSE(parse_members(R"("shoal": {})").shoal.reproducible);
  EXPECT_TRUE(parse_members(R"("shoal": {"reproducible": true})").shoal.reproducible);
  setenv("SHOAL_REPRODUCIBLE", "yes", 1);
  EXPECT_EQ(mistakes_of(""), "[environment SHOAL_REPRODUCIBLE] \"yes\" is not 0 or 1. Set one.");
  unsetenv("SHOAL_REPRODUCIBLE");
}

}  // namespace shoal::config
