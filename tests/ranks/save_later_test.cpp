// Saves behind training, through engines: to the byte what a save that is waited for writes, whatever the run keeps
// where; and training that goes on meanwhile shows nothing of it, nor the checkpoint of it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <memory>
#include <thread>

#include "checkpoint/engine_source.h"
#include "checkpoint/later_save.h"
#include "checkpoint/verify.h"
#include "shoal/checkpoint.h"
#include "temp_folder.h"
#include "training/outcome.h"
#include "training/state_bits.h"
#include "unit/checkpoint/folder_bytes.h"

namespace shoal::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Losses and norms of micro-steps, counted from the beginning of the run.
std::vector<double> train_micro_steps(
    Trainee& trainee, int from, int to, const RunOptions& options, const std::function<void()>& after_each = [] {}) {
  std::vector<double> record;
  for (int at = from; at < to; ++at) {
    const auto accumulation = static_cast<int>(options.accumulation);
    const Batch batch = batch_of(at / accumulation, at % accumulation, trainee.world.rank());
    const at::Tensor loss = forward(*trainee.engine, trainee.model, batch, {options.dropout, false, at % 3 != 0});
    record.push_back(loss.item<double>());
    trainee.engine->backward(loss);
    const StepResult result = trainee.engine->step();
    if (result.boundary) record.push_back(result.grad_norm);
    after_each();
  }
  return record;
}

constexpr int kSavedAt = 3, kEnd = 7;  // micro-steps; at an accumulation of 2 in the middle of a step

struct SavedRun {
  std::string name;
  RunOptions options;
  std::vector<int> worlds = {1, 2, 3};
};

RunOptions options_with(const std::function<void(RunOptions&)>& set) {
  RunOptions options;
  options.stage = 3;
  options.precision = Precision::bf16;
  options.overflow_step = -1;
  set(options);
  return options;
}

std::vector<SavedRun> saved_runs() {
  std::vector<SavedRun> cases;
  for (int stage = 0; stage <= 3; ++stage) {
    cases.push_back({fmt::format("stage_{}", stage), options_with([&](RunOptions& o) { o.stage = stage; })});
  }
  cases.push_back({"fp32", options_with([](RunOptions& o) { o.precision = Precision::fp32; }), {2}});
  cases.push_back({"fp16", options_with([](RunOptions& o) { o.precision = Precision::fp16; }), {2}});
  cases.push_back({"within_a_step", options_with([](RunOptions& o) { o.accumulation = 2; }), {1, 3}});
  cases.push_back({"lamb", options_with([](RunOptions& o) { o.optimizer = OptimizerKind::lamb; }), {2}});
  cases.push_back({"narrow_states", options_with([](RunOptions& o) { o.bf16_states = o.narrow_masters = true; }), {2}});
  cases.push_back({"deferred", options_with([](RunOptions& o) { o.defer = true; }), {2}});
  cases.push_back({"hybrid", options_with([](RunOptions& o) { o.shard_size = 2; }), {4}});
  cases.push_back({"second_copy", options_with([](RunOptions& o) { o.second_copy = 2; }), {4}});
  for (const Tier tier : {Tier::host, Tier::disk}) {
    cases.push_back({tier == Tier::host ? "states_in_host_memory" : "states_on_disk",
                     options_with([&](RunOptions& o) { o.offload.tier = tier, o.offload.buffer_count = 3; }),
                     {1, 2}});
    cases.push_back(
        {tier == Tier::host ? "weights_in_host_memory" : "weights_on_disk",
         options_with([&](RunOptions& o) { o.weights_tier = o.offload.tier = tier, o.offload.buffer_count = 3; }),
         {2}});
  }
  return cases;
}

class SaveLater : public ::testing::TestWithParam<SavedRun> {};

TEST_P(SaveLater, WritesTheBytesOfASaveThatIsWaitedForAndChangesNothing) {
  for (const int world : GetParam().worlds) {
    SCOPED_TRACE(fmt::format("{} ranks", world));
    const TempFolder scratch, at_once, later;
    RunOptions options = GetParam().options;
    options.offload.nvme_path = options.weights_path = scratch.path();
    struct Run {
      std::vector<double> record;
      std::string state;
    };
    const auto undisturbed = on_threads<Run>(world, [&](Group& group) {
      Trainee trainee(group, config_of(options, world));
      train_micro_steps(trainee, 0, kSavedAt, options);
      std::vector<double> record = train_micro_steps(trainee, kSavedAt, kEnd, options);
      return Run{record, state_bits(*trainee.engine, group)};
    });
    const auto disturbed = on_threads<Run>(world, [&](Group& group) {
      Trainee trainee(group, config_of(options, world));
      CheckpointSaver saver(*trainee.engine, group);
      train_micro_steps(trainee, 0, kSavedAt, options);
      const SaveOptions saving{"", kSavedAt, 0, {{"samples", "42"}}};
      SaveOptions first = saving, second = saving;
      first.folder = at_once.path();
      second.folder = later.path();
      save_checkpoint(*trainee.engine, group, first);
      saver.save_later(second);
      EXPECT_EQ(trainee.engine->meters().memory().held.save_pictures, saver.picture_nbytes());
      EXPECT_GE(saver.picture_nbytes(), saver.state_nbytes());
      std::vector<double> record = train_micro_steps(trainee, kSavedAt, kEnd, options, [&] { saver.poll_saved(); });
      EXPECT_EQ(saver.wait_saved()->path, later / "step-00000003");
      EXPECT_EQ(saver.last()->step, kSavedAt);
      EXPECT_FALSE(saver.under_way());
      return Run{record, state_bits(*trainee.engine, group)};
    });
    EXPECT_TRUE(bytes_of_folder(later.path()) == bytes_of_folder(at_once.path()));
    EXPECT_THAT(checkpoint::verify(later / "step-00000003"), IsEmpty());
    for (size_t rank = 0; rank < disturbed.size(); ++rank) {
      EXPECT_EQ(RunResult::bits(disturbed[rank].record), RunResult::bits(undisturbed[rank].record));
      EXPECT_TRUE(disturbed[rank].state == undisturbed[rank].state);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SaveLater, ::testing::ValuesIn(saved_runs()),
                         [](const auto& info) { return info.param.name; });

// The disk of one rank stands still while steps are taken, and those of the others do not.
TEST(SaveBehind, TrainingGoesOnWhileARanksDiskStandsStill) {
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
    const TempFolder scratch, at_once, later;
    RunOptions options = options_with([&](RunOptions& o) {
      o.offload.tier = tier, o.offload.buffer_count = 3;
      o.offload.nvme_path = scratch.path();
    });
    on_threads<int>(2, [&](Group& group) {
      Trainee trainee(group, config_of(options, 2));
      train_micro_steps(trainee, 0, kSavedAt, options);
      save_checkpoint(*trainee.engine, group, {at_once.path(), kSavedAt, 0, {}});
      std::latch held(1);
      std::shared_ptr<std::byte> memory;
      checkpoint::LaterSave::Options saving{{later.path(), kSavedAt, 0, {}}, checkpoint::kPieceNumel, {}};
      if (group.rank() == 1) saving.before_write = [&](int64_t) { held.wait(); };
      checkpoint::LaterSave save(checkpoint::source_of(*trainee.engine), group, saving, [&](int64_t nbytes, int64_t) {
        const size_t size = (static_cast<size_t>(nbytes) + 4095) / 4096 * 4096;
        memory = trainee.engine->state().picture_memory(size);
        return std::span<std::byte>(memory.get(), size);
      });
      train_micro_steps(trainee, kSavedAt, kEnd, options);
      if (group.rank() == 1) {
        EXPECT_FALSE(save.is_ready());
      }
      group.barrier({"wait", "test"}).wait();
      EXPECT_THAT(names_of(later.path()), ::testing::SizeIs(1)) << "the temporary folder";
      group.barrier({"wait", "test"}).wait();
      held.count_down();
      while (!save.go_on()) {
      }
      return 0;
    });
    EXPECT_TRUE(bytes_of_folder(later.path()) == bytes_of_folder(at_once.path()));
  }
}

TEST(SaveBehind, TheNextOneWaitsForTheFirstAndSaysSo) {
  const TempFolder temp;
  const RunOptions options = options_with([](RunOptions&) {});
  ::testing::internal::CaptureStderr();
  on_threads<int>(2, [&](Group& group) {
    Trainee trainee(group, config_of(options, 2));
    CheckpointSaver saver(*trainee.engine, group);
    EXPECT_TRUE(saver.poll_saved()) << "none is under way";
    EXPECT_EQ(saver.wait_saved(), std::nullopt);
    for (int step = 1; step <= 3; ++step) {
      train_micro_steps(trainee, step - 1, step, options);
      saver.save_later({temp.path(), step, 2, {}});
    }
    EXPECT_EQ(saver.last()->step, 2);
    EXPECT_EQ(saver.wait_saved()->step, 3);
    return 0;
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the save of step 1 is still under way: training waits for it."));
  EXPECT_THAT(names_of(temp.path()), ElementsAre("latest", "step-00000002", "step-00000003"));
}

TEST(SaveBehind, TheLeastMemoryIsTheSameCheckpoint) {
  const TempFolder at_once, later;
  RunOptions options = options_with([](RunOptions&) {});
  on_threads<int>(2, [&](Group& group) {
    Config config = config_of(options, 2);
    config.shoal.save_memory = 1;  // taken for the least; less than the state: later_save_test
    Trainee trainee(group, config);
    CheckpointSaver saver(*trainee.engine, group);
    train_micro_steps(trainee, 0, kSavedAt, options);
    save_checkpoint(*trainee.engine, group, {at_once.path(), kSavedAt, 0, {}});
    saver.save_later({later.path(), kSavedAt, 0, {}});
    train_micro_steps(trainee, kSavedAt, kEnd, options);
    saver.wait_saved();
    return 0;
  });
  EXPECT_TRUE(bytes_of_folder(later.path()) == bytes_of_folder(at_once.path()));
}

TEST(SaveBehind, AFailureIsToldOnEveryRankByTheNextCallAndTheRunGoesOn) {
  const TempFolder temp;
  const RunOptions options = options_with([](RunOptions&) {});
  ::testing::internal::CaptureStderr();
  on_threads<int>(2, [&](Group& group) {
    Trainee trainee(group, config_of(options, 2));
    CheckpointSaver saver(*trainee.engine, group);
    train_micro_steps(trainee, 0, 1, options);
    EXPECT_THROW(saver.save_later({"/proc/none", 1, 0, {}}), SaveError) << "it cannot begin";
    EXPECT_FALSE(saver.under_way());
    saver.save_later({temp.path(), 1, 0, {}});
    group.barrier({"wait", "test"}).wait();
    // Rank 0's folder is gone before it is published.
    if (group.rank() == 0) std::filesystem::remove_all(temp.path());
    group.barrier({"wait", "test"}).wait();
    while (!saver.poll_saved()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    train_micro_steps(trainee, 1, 2, options);
    EXPECT_THAT(message_of([&] { saver.wait_saved(); }),
                HasSubstr("[checkpoint save] step 1, behind training: rank 0: "));
    EXPECT_EQ(saver.wait_saved(), std::nullopt) << "it is told once";
    saver.save_later({temp.path(), 2, 0, {}});
    EXPECT_EQ(saver.wait_saved()->step, 2);
    return 0;
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("step 1, behind training"));
  EXPECT_THAT(names_of(temp.path()), ElementsAre("latest", "step-00000002"));
}

TEST(SaveBehind, NeedsItsEngineNoLongerOnceItIsTaken) {
  const TempFolder temp;
  const RunOptions options = options_with([](RunOptions&) {});
  on_threads<int>(2, [&](Group& group) {
    auto trainee = std::make_unique<Trainee>(group, config_of(options, 2));
    CheckpointSaver saver(*trainee->engine, group);
    train_micro_steps(*trainee, 0, 1, options);
    const std::string state = state_bits(*trainee->engine, group);
    saver.save_later({temp.path(), 1, 0, {}});
    trainee.reset();
    const std::string path = saver.wait_saved()->path;
    Trainee other(group, config_of(options, 2), 2);
    load_checkpoint(*other.engine, group, path);
    EXPECT_TRUE(state_bits(*other.engine, group) == state);
    return 0;
  });
}

TEST(SaveBehind, AfterItAnEvaluationAndALoadSeeWhatTheyWouldWithoutIt) {
  const TempFolder temp;
  const RunOptions options = options_with([](RunOptions&) {});
  on_threads<int>(2, [&](Group& group) {
    Trainee trainee(group, config_of(options, 2));
    CheckpointSaver saver(*trainee.engine, group);
    train_micro_steps(trainee, 0, 2, options);
    const auto evaluate = [&] {
      double loss = 0;
      trainee.engine->evaluate(
          [&] { loss = forward(*trainee.engine, trainee.model, batch_of(9, 0, group.rank()), {0.0}).item<double>(); });
      return loss;
    };
    const double before = evaluate();
    saver.save_later({temp.path(), 2, 0, {}});
    EXPECT_EQ(evaluate(), before);
    saver.wait_saved();
    train_micro_steps(trainee, 2, 4, options);
    EXPECT_NE(evaluate(), before);
    load_checkpoint(*trainee.engine, group, temp.path());
    EXPECT_EQ(evaluate(), before);
    return 0;
  });
}

}  // namespace
}  // namespace shoal::testing
