#include "checkpoint/later_save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <latch>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "checkpoint/save.h"
#include "checkpoint/verify.h"
#include "temp_folder.h"
#include "training/outcome.h"
#include "unit/checkpoint/fake_state.h"
#include "unit/checkpoint/folder_bytes.h"
#include "unit/checkpoint/on_ranks.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::bytes_of_folder;
using shoal::testing::FakeState;
using shoal::testing::message_of;
using shoal::testing::names_of;
using shoal::testing::on_ranks;
using shoal::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Memory of a rank for its pictures.
class Memory {
 public:
  explicit Memory(bool whole = true) : whole_(whole) {}
  LaterSave::Room room() {
    return [this](int64_t nbytes, int64_t least) -> std::span<std::byte> {
      if (!whole_) {
        EXPECT_LT(least, nbytes) << "no part";
      }
      const size_t size = (static_cast<size_t>(whole_ ? nbytes : least) + 4095) / 4096 * 4096;
      memory_.reset(size > 0 ? std::aligned_alloc(4096, size) : nullptr);
      return {static_cast<std::byte*>(memory_.get()), size};
    };
  }

 private:
  bool whole_;
  std::unique_ptr<void, decltype(&std::free)> memory_{nullptr, &std::free};
};

LaterSave::Options options_of(const std::string& folder, int64_t step, int64_t piece_numel = kPieceNumel) {
  return {{folder, step, 0, {{"key", "value"}}}, piece_numel, {}};
}

std::string finish(LaterSave& save) {
  for (;;) {
    if (const std::optional<std::string> path = save.go_on()) return *path;
  }
}

TEST(LaterSave, IsToTheByteWhatASaveThatIsWaitedForWrites) {
  constexpr int64_t kFewRows = 37, kManyRows = 700'000;  // many: more than the least memory on each of two ranks
  for (const auto& [world, rows] : std::vector<std::pair<int, int64_t>>{
           {1, kFewRows}, {2, kFewRows}, {3, kFewRows}, {4, kFewRows}, {2, kManyRows}}) {
    const TempFolder at_once, later;
    on_ranks(world, [&, rows = rows](Group& group) {
      FakeState state(group.rank(), group.size(), /*whole=*/false, /*moments=*/2, rows);
      state.fill();
      save_state(state.source(), group, {at_once.path(), 7, 0, {{"key", "value"}}});
      Memory memory(/*whole=*/rows == kFewRows);
      LaterSave save(state.source(), group, options_of(later.path(), 7), memory.room());
      state.fill(0.5f);  // training goes on
      EXPECT_EQ(finish(save), later / "step-00000007");
      EXPECT_EQ(save.written_share(), 1);
    });
    EXPECT_TRUE(bytes_of_folder(later.path()) == bytes_of_folder(at_once.path())) << world << " " << rows;
    EXPECT_THAT(verify(later / "step-00000007"), IsEmpty());
  }
}

TEST(LaterSave, OfManySmallPiecesIsThatOfTheStepWhereItWasAskedFor) {
  const TempFolder temp;
  on_ranks(2, [&](Group& group) {
    FakeState state(group.rank(), 2);
    state.fill();
    Memory memory;
    std::latch held(1);
    LaterSave::Options options = options_of(temp.path(), 3, 5);
    options.before_write = [&](int64_t) { held.wait(); };
    LaterSave save(state.source(), group, options, memory.room());
    EXPECT_FALSE(save.is_ready());
    EXPECT_FALSE(save.wait_for(0.02));
    state.fill(0.5f);
    held.count_down();
    finish(save);
  });
  EXPECT_THAT(verify(temp / "step-00000003"), IsEmpty());
  FakeState expected(0, 1, true);
  expected.fill();
  size_t compared = 0;
  // What was read before the step went on.
  const Manifest manifest = read_manifest(temp / "step-00000003");
  for (const Piece& piece : manifest.pieces) {
    const DurableFile file =
        DurableFile::open_read(temp / ("step-00000003/" + manifest.files[static_cast<size_t>(piece.file)].name));
    if (piece.dtype != DType::f32) continue;
    ++compared;
    EXPECT_LE(piece.numel, 5);
    std::vector<float> values(static_cast<size_t>(piece.numel));
    file.read_at(piece.offset, values.data(), values.size() * sizeof(float));
    const std::vector<float>& all = expected.values_.at({piece.param, piece.kind});
    EXPECT_EQ(values, std::vector<float>(all.begin() + piece.begin, all.begin() + piece.begin + piece.numel));
  }
  EXPECT_GE(compared, (37 * 3 + 5 * 7 + 1) * 3 / 5) << "three states of what is trained, at most 5 elements a piece";
}

TEST(LaterSave, UntilItIsCompleteTheOneBeforeIsTheLatest) {
  const TempFolder temp;
  on_ranks(2, [&](Group& group) {
    const FakeState state(group.rank(), 2);
    save_state(state.source(), group, {temp.path(), 1, 0, {}});
    Memory memory;
    LaterSave save(state.source(), group, options_of(temp.path(), 2), memory.room());
    group.barrier({"wait", "test"}).wait();
    EXPECT_EQ(find_latest_checkpoint(temp.path()), temp / "step-00000001");
    group.barrier({"wait", "test"}).wait();
    EXPECT_EQ(save.go_on(), std::nullopt) << "all have written, and rank 0 publishes";
    EXPECT_TRUE(save.wait_for(30));
    EXPECT_EQ(save.go_on(), temp / "step-00000002");
    EXPECT_EQ(find_latest_checkpoint(temp.path()), temp / "step-00000002");
  });
}

TEST(LaterSave, WhenOneRankFailsAllThrowAndTheEarlierStay) {
  const TempFolder temp;
  on_ranks(3, [&](Group& group) {
    const FakeState state(group.rank(), 3);
    save_state(state.source(), group, {temp.path(), 1, 0, {}});
    Memory memory;
    LaterSave::Options options = options_of(temp.path(), 2);
    if (group.rank() == 2) options.before_write = [](int64_t) { throw Error("checkpoint", "the disk is full."); };
    {
      LaterSave save(state.source(), group, options, memory.room());
      EXPECT_EQ(message_of([&] { finish(save); }),
                "[checkpoint save] step 2, behind training: rank 2: the disk is full.");
    }
    StateSource source = state.source();
    if (group.rank() == 1) source.read = [](const StateRun&, float*) { throw std::runtime_error("no such state"); };
    EXPECT_EQ(message_of([&] { LaterSave(source, group, options_of(temp.path(), 2), memory.room()); }),
              "[checkpoint save] rank 1: no such state");
    group.barrier({"wait", "test"}).wait();
    EXPECT_THAT(names_of(temp.path()), ElementsAre("latest", "step-00000001"));
    group.barrier({"wait", "test"}).wait();
    LaterSave again(state.source(), group, options_of(temp.path(), 2), memory.room());
    EXPECT_EQ(finish(again), temp / "step-00000002");
  });
  EXPECT_THAT(verify(temp / "step-00000002"), IsEmpty());
}

TEST(LaterSave, RanksThatSaveDifferentStepsStop) {
  const TempFolder temp;
  on_ranks(2, [&](Group& group) {
    const FakeState state(group.rank(), 2);
    Memory memory;
    EXPECT_EQ(message_of(
                  [&] { LaterSave(state.source(), group, options_of(temp.path(), 10 + group.rank()), memory.room()); }),
              "[checkpoint save] rank 1: it saves step 11, rank 0 saves step 10. Save the same on every rank.");
  });
  EXPECT_THAT(names_of(temp.path()), IsEmpty());
}

TEST(LaterSave, GivenUpItLeavesNothing) {
  for (const bool written : {false, true}) {
    const TempFolder temp;
    ::testing::internal::CaptureStderr();
    on_ranks(2, [&](Group& group) {
      const FakeState state(group.rank(), 2);
      save_state(state.source(), group, {temp.path(), 1, 0, {}});
      Memory memory;
      auto save = std::make_unique<LaterSave>(state.source(), group, options_of(temp.path(), 2), memory.room());
      if (written) save->wait_for(30);
      group.barrier({"wait", "test"}).wait();
      if (group.rank() == 1) save.reset();  // rank 0 takes the folder away
      group.barrier({"wait", "test"}).wait();
    });
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the save of step 2 was under way and is lost"));
    EXPECT_THAT(names_of(temp.path()), ElementsAre("latest", "step-00000001"));
  }
}

TEST(LaterSave, AThreadThatCannotPublishFailsTheSaveOnEveryRank) {
  const TempFolder temp;
  on_ranks(2, [&](Group& group) {
    const FakeState state(group.rank(), 2);
    Memory memory;
    LaterSave::Options options = options_of(temp.path(), 2);
    options.before_publish = [] {
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    };
    LaterSave save(state.source(), group, options, memory.room());
    EXPECT_THAT(message_of([&] { finish(save); }),
                HasSubstr("[checkpoint save] step 2, behind training: rank 0: cannot start a thread to publish it"));
  });
  EXPECT_THAT(names_of(temp.path()), IsEmpty());
}

// What rank 0 says of a save whose ranks end after it was published, or before it failed to be.
std::string said_at_the_end(const std::string& folder) {
  ::testing::internal::CaptureStderr();
  try {
    on_ranks(2, [&](Group& group) {
      const FakeState state(group.rank(), 2);
      Memory memory;
      LaterSave save(state.source(), group, options_of(folder, 2), memory.room());
      EXPECT_EQ(save.go_on(), std::nullopt);
      EXPECT_TRUE(save.wait_for(30));
      if (group.rank() == 1) throw Error("test", "rank 1 dies.");
      save.go_on();  // throws: nobody else comes
    });
  } catch (const Error&) {
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(LaterSave, ThatIsCompleteIsNotCalledLostWhereTheRanksEndBeforeTheyHeardOfIt) {
  const TempFolder temp;
  EXPECT_THAT(said_at_the_end(temp.path()), ::testing::Not(HasSubstr("is lost")));
  EXPECT_EQ(find_latest_checkpoint(temp.path()), temp / "step-00000002");
}

TEST(LaterSave, ThatIsLostSaysWhatItsPublishingMet) {
  const TempFolder temp;
  std::filesystem::create_directories(temp / "latest/in the way");
  EXPECT_THAT(said_at_the_end(temp.path()),
              HasSubstr("the save of step 2 was under way and is lost: cannot rename to " + temp / "latest"));
}

TEST(LaterSave, AStateThatDoesNotCoverEverythingIsNotPublished) {
  const TempFolder temp;
  auto world = make_single_group();
  const FakeState state(0, 1);
  StateSource source = state.source();
  source.runs.erase(source.runs.begin());
  Memory memory;
  LaterSave save(source, *world, options_of(temp.path(), 1), memory.room());
  EXPECT_THAT(message_of([&] { finish(save); }), HasSubstr("does not cover the weight of wte"));
  EXPECT_THAT(names_of(temp.path()), IsEmpty());
}

}  // namespace
}  // namespace shoal::checkpoint
