// A checkpoint knows no mesh: what a run with groups of ranks saves, runs with full sharding, second copies or one rank
// load, and go on from, with the same bits; and each element is written once, however many ranks hold it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "shoal/checkpoint.h"
#include "temp_folder.h"
#include "training/outcome.h"
#include "training/state_bits.h"

namespace shoal::testing {
namespace {

struct Mesh {
  std::string name;
  int world = 1;
  int shard_size = -1;
  int second_copy = 1;
  int stage = 3;
};

RunOptions options_of(const Mesh& mesh) {
  RunOptions options;
  options.stage = mesh.stage;
  options.precision = Precision::bf16;
  options.leaves = 12;
  options.shard_size = mesh.shard_size;
  options.second_copy = mesh.second_copy;
  return options;
}

struct MeshBits {
  std::string state, weights;
  bool operator==(const MeshBits&) const = default;
};

MeshBits mesh_bits_of(Trainee& trainee) { return {state_bits(*trainee.engine, trainee.world), trainee.weights()}; }

// One leaf a rank: a function of its number, whatever ranks there are.
void train_micro_step(Trainee& trainee, int step, int64_t micro_step, const RunOptions& options) {
  Engine& engine = *trainee.engine;
  const int64_t leaf = micro_step * trainee.world.size() + trainee.world.rank();
  const bool uses = (step + leaf) % 3 != 0;
  engine.backward(forward(engine, trainee.model, batch_of(step, leaf, 0), {options.dropout, options.recompute, uses}));
  engine.step();
}

void train_leaves(Trainee& trainee, int from, int to, const RunOptions& options) {
  const int64_t micro_steps = trainee.engine->config().batch.accumulation_steps;
  for (int step = from; step < to; ++step) {
    for (int64_t micro = 0; micro < micro_steps; ++micro) train_micro_step(trainee, step, micro, options);
  }
}

constexpr int kStepsEach = 2;

// Loads step `from` (0: nothing), trains, saves; what a rank then has.
MeshBits go_on(const Mesh& mesh, int from, const std::string& folder) {
  const RunOptions options = options_of(mesh);
  return on_threads<MeshBits>(mesh.world, [&](Group& group) {
    Trainee trainee(group, config_of(options, mesh.world), /*model=*/from > 0 ? 2 : 1);
    if (from > 0) load_checkpoint(*trainee.engine, group, folder);
    train_leaves(trainee, from, from + kStepsEach, options);
    save_checkpoint(*trainee.engine, group, {folder, from + kStepsEach, 0, {}});
    return mesh_bits_of(trainee);
  })[0];
}

TEST(HybridCheckpoint, ARunGoesOnWithAnyOtherMesh) {
  const std::vector<Mesh> chain = {{"2 x 2", 4, 2},      {"full", 4},     {"second in 3 of 6", 6, -1, 3},
                                   {"one rank"},         {"3 x 2", 6, 2}, {"stage 1", 4, 2, 1, 1},
                                   {"2 x 3", 6, 3, 1, 2}};
  const TempFolder meshes, alone;
  int step = 0;
  for (const Mesh& mesh : chain) {
    SCOPED_TRACE(mesh.name);
    const MeshBits expected = go_on({"one rank"}, step, alone.path());
    EXPECT_TRUE(go_on(mesh, step, meshes.path()) == expected);
    step += kStepsEach;
  }
}

uint64_t nbytes_under(const std::string& folder) {
  uint64_t nbytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    if (file.is_regular_file() && file.path().extension() != ".json") nbytes += file.file_size();
  }
  return nbytes;
}

TEST(HybridCheckpoint, ReplicasWriteOnce) {
  std::vector<uint64_t> sizes;
  for (const Mesh& mesh : {Mesh{"full", 4}, Mesh{"2 x 2", 4, 2}, Mesh{"4 x 1", 4, 1}}) {
    const TempFolder folder;
    go_on(mesh, 0, folder.path());
    sizes.push_back(nbytes_under(folder.path()));
    EXPECT_GT(sizes.back(), 0u);
  }
  // Headers name the runs, of which there may be one more or less; states are thousands of elements. Two copies would
  // be twice the bytes.
  EXPECT_NEAR(static_cast<double>(sizes[1]), static_cast<double>(sizes[0]), 0.1 * static_cast<double>(sizes[0]));
  EXPECT_NEAR(static_cast<double>(sizes[2]), static_cast<double>(sizes[0]), 0.1 * static_cast<double>(sizes[0]));
}

// Between the first forward after an update and the next update, a second copy is what gathers read: what changes the
// weights by another way must empty it.
class SecondCopy : public ::testing::Test {
 protected:
  RunOptions options() const {
    RunOptions run = options_of({"second in 2", 4, -1, 2});
    run.persistence_threshold = 0;
    run.overflow_step = -1;
    return run;
  }
  // The same on ranks with a second copy and without.
  void expect_same(const std::function<void(Trainee&, const RunOptions&)>& play) {
    std::vector<std::vector<MeshBits>> found;
    for (const int second : {1, 2}) {
      RunOptions run = options();
      run.second_copy = second;
      found.push_back(on_threads<MeshBits>(4, [&](Group& group) {
        Trainee trainee(group, config_of(run, 4));
        train_leaves(trainee, 0, 1, run);
        play(trainee, run);
        train_leaves(trainee, 1, 3, run);
        return mesh_bits_of(trainee);
      }));
    }
    EXPECT_TRUE(found[0] == found[1]);
  }
};

TEST_F(SecondCopy, IsEmptiedByWritesOfGatheredParameters) {
  expect_same([](Trainee& trainee, const RunOptions&) {
    trainee.engine->with_gathered(MatrixModel::names(), Access::write, [&] {
      for (const at::Tensor& tensor : trainee.model.tensors()) tensor.detach().mul_(0.5);
    });
  });
}

TEST_F(SecondCopy, IsEmptiedByEditsAndLoads) {
  expect_same([](Trainee& trainee, const RunOptions&) {
    const StateView state = trainee.engine->state();
    for (const StateRun& run : state.kept()) {
      if (run.kind != StateKind::weight) continue;
      std::vector<float> values(static_cast<size_t>(run.numel));
      state.read(run, values.data());
      for (float& value : values) value *= 2;
      state.edit(run, values.data());
    }
    state.finish_edits();
  });
  const TempFolder folder;
  expect_same([&](Trainee& trainee, const RunOptions&) {
    save_checkpoint(*trainee.engine, trainee.world, {folder.path(), 1, 0, {}});
    trainee.engine->with_gathered(MatrixModel::names(), Access::write, [&] {
      for (const at::Tensor& tensor : trainee.model.tensors()) tensor.detach().zero_();
    });
    load_checkpoint(*trainee.engine, trainee.world, folder.path());
  });
}

// Inside a pass whose copies are filled already, where the weights are read but the step is not taken.
TEST_F(SecondCopy, IsNotFilledByEvaluationAndServesIt) {
  const RunOptions run = options();
  const auto gathered = on_threads<std::vector<uint64_t>>(4, [&](Group& group) {
    Trainee trainee(group, config_of(run, 4));
    train_leaves(trainee, 0, 2, run);
    std::vector<uint64_t> sent;
    const auto evaluate = [&] {
      const uint64_t before = trainee.engine->meters().traffic().sent_nbytes;
      trainee.engine->evaluate([&] { forward(*trainee.engine, trainee.model, batch_of(0, 0, 99), {0, false, true}); });
      sent.push_back(trainee.engine->meters().traffic().sent_nbytes - before);
    };
    evaluate();  // its first pass agrees on an order too
    evaluate();
    evaluate();
    train_micro_step(trainee, 2, 0, run);  // fills them, and no update follows
    evaluate();
    group.barrier({"end", ""}).wait();  // of a step that is not taken: who leaves earlier takes others' sums with him
    return sent;
  });
  EXPECT_EQ(gathered[0][1], gathered[0][2]);
  EXPECT_LT(gathered[0][3], gathered[0][2]) << "evaluation found copies filled before, or none after the forward";
}

}  // namespace
}  // namespace shoal::testing
