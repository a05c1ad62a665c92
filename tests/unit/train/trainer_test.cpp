// The loop itself, on one rank; tests/process/train_*_test.cpp run the command on several.
#include "train/trainer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

#include "base/json.h"
#include "checkpoint/export_safetensors.h"
#include "checkpoint/resolve.h"
#include "message_of.h"
#include "temp_folder.h"
#include "train/generate.h"

namespace shoal::train {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;

TrainOptions small(const TempFolder& folder) {
  TrainOptions options;
  options.model = folder / "model";
  folder.write("model/config.json", R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5, "vocab_size": 256})");
  options.data = "synthetic:tokens=5000";
  options.steps = 4;
  options.threads = 1;
  options.log_every = 0;
  options.out = folder / "run";
  return options;
}

std::vector<json::Value> lines_of(const TempFolder& folder, const std::string& name) {
  std::vector<json::Value> lines;
  std::stringstream text(folder.read(name));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line, name));
  return lines;
}

TEST(Trainer, LeavesARunBehind) {
  const TempFolder folder;
  TrainOptions options = small(folder);
  options.eval_every = 2;
  const Config config = prepare_run(options, 1).config;
  EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
  const std::vector<json::Value> metrics = lines_of(folder, "run/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 4u);
  EXPECT_EQ(metrics[3].find("tokens")->as_integer(), 4 * 8 * 32);
  EXPECT_EQ(metrics[0].find("lr")->as_number(), 3e-4);
  EXPECT_FALSE(metrics[0].find("skipped")->as_boolean());
  EXPECT_GT(metrics[0].find("step_ms")->as_number(), 0);
  EXPECT_LE(metrics[0].find("wait_comm_ms")->as_number(), metrics[0].find("step_ms")->as_number());
  EXPECT_EQ(lines_of(folder, "run/eval.jsonl").size(), 2u);
  EXPECT_EQ(Config::from_text(folder.read("run/config.json")), config);
  EXPECT_EQ(json::parse(folder.read("run/run.json"), "run").find("threads")->as_integer(), 1);
  EXPECT_EQ(checkpoint::resolve_checkpoint(folder / "run", "x"), folder / "run/checkpoints/step-00000004");
}

// Weights of a run's checkpoint, by their names in the model's files.
std::map<std::string, std::vector<float>> weights_of(const TempFolder& folder, const std::string& run) {
  checkpoint::export_safetensors(checkpoint::resolve_checkpoint(folder / run, "x"), folder / (run + "-weights"),
                                 {.dtype = DType::f32});
  const auto reader = SafetensorsReader::open(folder / (run + "-weights"));
  std::map<std::string, std::vector<float>> weights;
  for (const SafeTensor& tensor : reader->tensors()) {
    int64_t numel = 1;
    for (const int64_t size : tensor.shape) numel *= size;
    std::vector<float>& values = weights[tensor.name];
    values.resize(static_cast<size_t>(numel));
    reader->read(tensor.name, 0, numel, values.data());
  }
  return weights;
}

// One step of SGD on one start: what the flags change is what they say.
TEST(Trainer, DecaysAndRatesAreThoseOfTheFlags) {
  const TempFolder folder;
  const auto trained = [&](const std::string& run, const auto& set) {
    TrainOptions options = small(folder);
    options.steps = 1;
    options.out = folder / run;
    options.overrides = {"optimizer.type=SGD", "optimizer.params.lr=0.5", "optimizer.params.weight_decay=0.5"};
    set(options);
    EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
    return weights_of(folder, run);
  };
  const auto still = trained("still", [](TrainOptions& options) { options.overrides[1] = "optimizer.params.lr=0"; });
  const auto plain = trained("plain", [](TrainOptions&) {});
  const auto flags = trained("flags", [](TrainOptions& options) { options.no_decay = true; });
  const auto slower = trained("slower", [](TrainOptions& options) { options.layer_decay = 0.5; });
  ASSERT_EQ(plain.size(), still.size());
  for (const auto& [name, values] : plain) {
    const bool is_norm = name.find("norm") != std::string::npos;
    const float share = name == "model.embed_tokens.weight"          ? 0.25F
                        : name.find("layers.0") != std::string::npos ? 0.5F
                                                                     : 1;
    for (size_t i = 0; i < values.size(); ++i) {
      const float start = still.at(name)[i];
      ASSERT_NEAR(flags.at(name)[i] - values[i], is_norm ? 0.25F * start : 0, 1e-6) << name;
      ASSERT_NEAR(slower.at(name)[i] - start, share * (values[i] - start), 1e-6) << name;
    }
  }
}

TEST(Trainer, TracesStepsThatItTakesAndNoOthers) {
  for (const auto& [steps, is_there] : {std::pair("2-3", true), std::pair("4-9", true), std::pair("5-9", false)}) {
    const TempFolder folder;
    TrainOptions options = small(folder);
    options.read_behind = 1;
    options.trace_steps = steps;
    EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
    EXPECT_EQ(std::filesystem::exists(folder / "run/trace.json"), is_there) << steps;
    EXPECT_EQ(lines_of(folder, "run/metrics.jsonl").size(), 4u);
  }
}

// Lines up to the times in them.
std::string numbers_in(const TempFolder& folder, const std::string& name) {
  std::string numbers;
  std::stringstream text(folder.read(name));
  for (std::string line; std::getline(text, line);) {
    numbers += line.substr(0, std::min(line.find("tokens_per_s"), line.find("eval_ms"))) + "\n";
  }
  return numbers;
}

TEST(Trainer, StepsThatAreReadBehindTheNextLeaveTheSameLines) {
  std::vector<std::string> metrics, evaluations, digests, saved;
  for (const int behind : {0, 1, 2}) {
    const TempFolder folder;
    TrainOptions options = small(folder);
    options.steps = 11;
    options.eval_every = 4;
    options.save_every = 5;
    options.digest_every = 3;
    options.read_behind = behind;
    EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
    metrics.push_back(numbers_in(folder, "run/metrics.jsonl"));
    evaluations.push_back(numbers_in(folder, "run/eval.jsonl"));
    digests.push_back(folder.read("run/digests.jsonl"));
    saved.emplace_back();
    for (const auto& entry : std::filesystem::directory_iterator(folder / "run/checkpoints")) {
      saved.back() += entry.is_directory() ? "d" : "f";
    }
  }
  EXPECT_EQ(std::count(metrics[0].begin(), metrics[0].end(), '\n'), 11);
  for (const size_t behind : {1, 2}) {
    EXPECT_EQ(metrics[behind], metrics[0]);
    EXPECT_EQ(evaluations[behind], evaluations[0]);
    EXPECT_EQ(digests[behind], digests[0]);
    EXPECT_EQ(saved[behind], saved[0]);
  }
}

TEST(Trainer, AnAuditLeavesNoMark) {
  std::vector<std::string> metrics, digests;
  for (const int64_t every : {0, 2}) {
    const TempFolder folder;
    TrainOptions options = small(folder);
    options.digest_every = 1;
    options.audit_every = every;
    options.read_behind = 1;
    EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
    metrics.push_back(numbers_in(folder, "run/metrics.jsonl"));
    digests.push_back(folder.read("run/digests.jsonl"));
    const std::string events = folder.read("run/events.jsonl");
    EXPECT_EQ(events.find("\"audit\"") != std::string::npos, every > 0);
  }
  EXPECT_EQ(metrics[1], metrics[0]);
  EXPECT_EQ(digests[1], digests[0]);
}

// The least step as a share of the median one, of a run that reads results so late. All steps are within the run's
// time.
double least_step_of_a_run(int behind) {
  const TempFolder folder;
  TrainOptions options = small(folder);
  options.steps = 12;
  options.save_every = 5;
  options.read_behind = behind;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
  const double passed = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  double sum = 0, data = 0;
  std::vector<double> ms;
  for (const json::Value& line : lines_of(folder, "run/metrics.jsonl")) {
    ms.push_back(line.find("step_ms")->as_number());
    sum += ms.back();
    data += line.find("data_ms")->as_number();
  }
  EXPECT_LT(sum, passed);
  EXPECT_LT(data, sum);
  std::sort(ms.begin(), ms.end());
  return ms.front() / ms[ms.size() / 2];
}

// A result that is read late has the time at which it was known: no step takes none, and none takes the time of two.
// On a machine that others use one run may have such steps; not each of many.
TEST(Trainer, TimesAreThoseOfAUsersClockHoweverLateStepsAreRead) {
  for (const int behind : {0, 1, 2}) {
    double best = 0;
    for (int run = 0; run < 8 && best <= 0.1; ++run) best = std::max(best, least_step_of_a_run(behind));
    EXPECT_GT(best, 0.1) << behind;
  }
}

TEST(Trainer, LeavesWhatHappenedForTheReport) {
  const TempFolder folder;
  TrainOptions options = small(folder);
  options.stop_at = 3;
  options.save_every = 2;
  options.eval_every = 3;
  EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
  options.stop_at = 0;
  options.resume = "auto";
  EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
  std::string events;
  for (const json::Value& line : lines_of(folder, "run/events.jsonl")) {
    events += line.find("event")->as_text() + " " + json::write(*line.find("step")) + "\n";
    if (line.find("event")->as_text() != "memory") continue;
    EXPECT_EQ(json::write(*line.find("planned")->find("weights")), json::write(*line.find("held")->find("weights")));
    EXPECT_GT(line.find("held")->find("states")->as_integer(), 0);
  }
  EXPECT_EQ(events, "start 0\nevaluation 3\nsave 2\nmemory 3\nsave 3\nend 3\nresume 3\nsave 4\nmemory 4\nend 4\n")
      << "a save behind training is told when it is complete";
  EXPECT_EQ(lines_of(folder, "run/ranks.jsonl").size(), 3u) << "before each save, and at the end";
}

TEST(Trainer, WritesDigestsOfWeightsAndMoments) {
  const TempFolder folder;
  TrainOptions options = small(folder);
  options.digest_every = 2;
  options.stop_at = 3;
  EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
  options.stop_at = 0;
  options.resume = "auto";
  EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
  const std::vector<json::Value> metrics = lines_of(folder, "run/metrics.jsonl");
  const std::vector<json::Value> digests = lines_of(folder, "run/digests.jsonl");
  ASSERT_EQ(digests.size(), 2u);
  for (const size_t line : {0, 1}) {
    const size_t step = 2 * line + 2;
    EXPECT_EQ(digests[line].find("step")->as_integer(), static_cast<int64_t>(step));
    EXPECT_EQ(digests[line].find("digest")->as_text(), metrics[step - 1].find("digest")->as_text());
    EXPECT_EQ(metrics[step - 2].find("digest"), nullptr);
    const json::Value& first = digests[line].find("units")->as_object().at(0).value.as_object().at(0).value;
    EXPECT_EQ(first.as_object().size(), 3u) << "a weight and two moments";
  }
  EXPECT_NE(digests[0].find("digest")->as_text(), digests[1].find("digest")->as_text());
}

TEST(Trainer, TakesNoStepTwice) {
  const TempFolder folder;
  TrainOptions options = small(folder);
  options.stop_at = 2;
  EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
  EXPECT_EQ(lines_of(folder, "run/metrics.jsonl").size(), 2u);
  options.stop_at = 0;
  options.resume = "auto";
  EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
  EXPECT_EQ(train(options, prepare_run(options, 1)), 0) << "nothing is left to do";
  EXPECT_EQ(lines_of(folder, "run/metrics.jsonl").size(), 4u);
  options.seed = 2;
  options.steps = 6;
  EXPECT_THAT(message_of([&] { train(options, prepare_run(options, 1)); }), HasSubstr("[--seed]"));
}

TEST(Trainer, SaysWhatBecomesOfMomentsUnderAnotherOptimizer) {
  const TempFolder folder;
  TrainOptions options = small(folder);
  options.stop_at = 1;
  EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
  options.resume = "auto";
  options.lr = 0.01;
  const auto said = [&](int64_t stop_at, const std::string& optimizer) {
    options.stop_at = stop_at;
    options.overrides = {R"(optimizer={"type": ")" + optimizer + R"("})"};
    ::testing::internal::CaptureStdout();
    const std::string refused = message_of([&] { train(options, prepare_run(options, 1)); });
    return ::testing::internal::GetCapturedStdout() + refused;
  };
  EXPECT_THAT(said(2, "AdamW"), ::testing::Not(HasSubstr("it was made with")));
  EXPECT_THAT(said(3, "Lion"), HasSubstr("made with AdamW, this run updates with Lion: dropped second_moment"));
  EXPECT_THAT(said(4, "AdamW"), HasSubstr("it has no second_moment of"));
  EXPECT_THAT(said(4, "SGD"), HasSubstr("made with Lion, this run updates with SGD: dropped first_moment"));
}

TEST(Trainer, WithoutAFolderItWritesNothing) {
  const TempFolder folder;
  TrainOptions options = small(folder);
  options.out = "";
  EXPECT_EQ(train(options, prepare_run(options, 1)), 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(ThreadsFor, TheFlagComesFirst) {
  TrainOptions options;
  options.threads = 3;
  EXPECT_EQ(threads_for(options, 2), 3);
}

}  // namespace
}  // namespace shoal::train
