#include "optim/fetched_weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "unit/device/quiet_copy_streams.h"
#include "unit/optim/far_queue.h"
#include "unit/optim/named_copy_streams.h"

namespace shoal {
namespace {

// Copies at once, and writes down what it was asked for.
class ToldCopyStreams final : public testing::QuietCopyStreams {
 public:
  explicit ToldCopyStreams(std::vector<std::string>& told) : told_(told) {}
  void make_room(int chunks) override { room_ = chunks; }
  void follow_queue() override { told_.push_back("follow"); }
  void copy_in(int chunk, std::byte* to, const std::byte* from, size_t nbytes, int after) override {
    EXPECT_LT(chunk, room_);
    told_.push_back(fmt::format("in {} after {}", chunk, after));
    std::memcpy(to, from, nbytes);
  }
  void hold_queue(int chunk) override { told_.push_back(fmt::format("hold {}", chunk)); }
  void hold_queue_out(int chunk) override { told_.push_back(fmt::format("hold for {}", chunk)); }
  void mark_used(int chunk) override { told_.push_back(fmt::format("used {}", chunk)); }
  void copy_out(int chunk, std::byte* to, const std::byte* from, size_t nbytes) override {
    EXPECT_EQ(told_.back(), fmt::format("used {}", chunk)) << "the update is done before it goes";
    told_.push_back(fmt::format("out {}", chunk));
    std::memcpy(to, from, nbytes);
  }
  void wait_out(int chunk) override { told_.push_back(fmt::format("wait for {}", chunk)); }
  double newly_held_seconds() override { return 0.5; }

 private:
  std::vector<std::string>& told_;
  int room_ = 0;
};

struct Fetching {
  explicit Fetching(int pieces) : homes(static_cast<size_t>(pieces), 0) {
    far.streams = [this] { return std::make_unique<ToldCopyStreams>(told); };
    weights = std::make_unique<FetchedWeights>(far, sizeof(int), std::make_shared<Ledger>());
    for (int& home : homes) weights->add(reinterpret_cast<std::byte*>(&home), sizeof(int));
  }
  // An update: adds one.
  void use(int piece, int last) {
    weights->begin_use(piece, last);
    int value = 0;
    std::memcpy(&value, weights->address(piece), sizeof(int));
    ++value;
    std::memcpy(weights->address(piece), &value, sizeof(int));
    weights->end_use(piece);
  }

  testing::FarQueue far;
  std::vector<std::string> told;
  std::vector<int> homes;
  std::unique_ptr<FetchedWeights> weights;
};

TEST(FetchedWeights, EveryPieceComesIsUpdatedAndGoesHomeInEveryStep) {
  Fetching run(3 * kFetchedSlots + 3);
  const int pieces = static_cast<int>(run.homes.size());
  for (int step = 1; step <= 3; ++step) {
    run.weights->begin_step();
    for (int piece = 0; piece < pieces; ++piece) run.use(piece, pieces);
    EXPECT_EQ(run.homes, std::vector<int>(run.homes.size(), step));
  }
}

TEST(FetchedWeights, PiecesComeAheadAndIntoASlotThatIsEmpty) {
  Fetching run(kFetchedSlots + 2);
  run.weights->begin_step();
  run.use(0, kFetchedSlots + 2);
  std::vector<std::string> expected = {"follow"};
  for (int piece = 0; piece < kFetchedSlots; ++piece) expected.push_back(fmt::format("in {} after -1", piece));
  for (const char* told : {"hold 0", "used 0", "out 0"}) expected.emplace_back(told);
  EXPECT_EQ(run.told, expected);
  run.told.clear();
  run.use(1, kFetchedSlots + 2);
  EXPECT_EQ(run.told,
            (std::vector<std::string>{fmt::format("in {} after 0", kFetchedSlots), "hold 1", "used 1", "out 1"}));
}

// The homes of the next unit may not be there yet.
TEST(FetchedWeights, NoPieceComesBeforeItMay) {
  Fetching run(4);
  run.weights->begin_step();
  run.use(0, 2);
  EXPECT_EQ(run.told,
            (std::vector<std::string>{"follow", "in 0 after -1", "in 1 after -1", "hold 0", "used 0", "out 0"}));
}

TEST(FetchedWeights, TheNextStepWaitsForWhatWasInASlotLast) {
  Fetching run(2);
  run.weights->begin_step();
  run.use(0, 2);
  run.use(1, 2);
  run.told.clear();
  run.weights->begin_step();
  run.use(0, 2);
  EXPECT_EQ(run.told[1], "in 0 after 0");
  EXPECT_EQ(run.told[2], "in 1 after 1");
}

TEST(FetchedWeights, OtherPiecesWaitForWhatTheOldOnesLeftInTheirSlots) {
  Fetching run(kFetchedSlots + 1);
  run.weights->begin_step();
  for (int piece = 0; piece <= kFetchedSlots; ++piece) run.use(piece, kFetchedSlots + 1);
  run.weights->clear();
  for (int& home : run.homes) run.weights->add(reinterpret_cast<std::byte*>(&home), sizeof(int));
  run.told.clear();
  run.weights->begin_step();
  run.use(0, 2);
  EXPECT_EQ(run.told[1], fmt::format("in 0 after {}", kFetchedSlots));
  EXPECT_EQ(run.told[2], "in 1 after 1");
}

TEST(FetchedWeights, WhoeverReadsAHomeWaitsForItsLastPiece) {
  Fetching run(1);
  run.told.clear();
  run.weights->hold_queue(0);
  run.weights->wait(0);
  EXPECT_EQ(run.told, (std::vector<std::string>{"hold for 0", "wait for 0"}));
  EXPECT_EQ(run.weights->newly_held_seconds(), 0.5);
}

TEST(FetchedWeights, ATraceKnowsWhatIsWaitedFor) {
  testing::FarQueue far;
  const auto name = std::make_shared<std::string>();
  far.streams = [&] { return std::make_unique<testing::NamedCopyStreams>(name); };
  const FetchedWeights weights(far, 4, std::make_shared<Ledger>());
  EXPECT_EQ(*name, "host: weights");
}

}  // namespace
}  // namespace shoal
