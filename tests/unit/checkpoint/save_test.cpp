#include "checkpoint/save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <stdexcept>
#include <string_view>

#include "checkpoint/run_folder.h"
#include "checkpoint/verify.h"
#include "comm/group/full_group.h"
#include "temp_folder.h"
#include "training/outcome.h"
#include "unit/checkpoint/fake_state.h"
#include "unit/checkpoint/on_ranks.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::FakeState;
using shoal::testing::message_of;
using shoal::testing::names_of;
using shoal::testing::on_ranks;
using shoal::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Save, EveryRankGetsThePathOfAWholeCheckpoint) {
  for (const int world : {1, 2, 3, 4}) {
    const TempFolder temp;
    on_ranks(world, [&](Group& group) {
      FakeState state(group.rank(), world);
      state.fill();
      SaveOptions options{.folder = temp / "a/b", .step = 7, .keep_last = 0, .extra = {}};
      options.extra = {{"key", "value"}};
      EXPECT_EQ(save_state(state.source(), group, options), temp / "a/b/step-00000007");
    });
    EXPECT_THAT(verify(temp / "a/b/step-00000007"), IsEmpty());
    const Manifest manifest = read_manifest(temp / "a/b/step-00000007");
    EXPECT_EQ(manifest.world, world);
    EXPECT_EQ(manifest.step, 7);
    EXPECT_EQ(manifest.extra.at("key"), "value");
    EXPECT_EQ(manifest.randoms.size(), static_cast<size_t>(world));
    EXPECT_THAT(manifest.states, ElementsAre(StateKind::weight, StateKind::first_moment, StateKind::second_moment));
  }
}

TEST(Save, KeepsTheLast) {
  const TempFolder temp;
  auto world = make_single_group();
  const FakeState state(0, 1);
  for (const int64_t step : {1, 2, 3, 4}) save_state(state.source(), *world, {temp.path(), step, 2, {}});
  EXPECT_THAT(names_of(temp.path()), ElementsAre("latest", "step-00000003", "step-00000004"));
}

TEST(Save, WhenOneRankFailsAllThrowAndTheEarlierStay) {
  const TempFolder temp;
  on_ranks(3, [&](Group& group) {
    const FakeState state(group.rank(), 3);
    save_state(state.source(), group, {temp.path(), 1, 1, {}});
    StateSource source = state.source();
    if (group.rank() == 2) {
      source.read = [](const StateRun&, float*) { throw std::runtime_error("the disk is full"); };
    }
    EXPECT_EQ(message_of([&] {
                save_state(source, group, {temp.path(), 2, 1, {}});
              }),
              "[checkpoint save] rank 2: the disk is full");
    EXPECT_THROW(save_state(source, group, {temp.path(), 2, 1, {}}), SaveError) << "the run may go on";
    EXPECT_EQ(message_of([&] {
                save_state(state.source(), group, {temp.path(), -1, 1, {}});
              }),
              "[checkpoint save] rank 0: -1 is no step. Use 0 or more.");
  });
  EXPECT_THAT(names_of(temp.path()), ElementsAre("latest", "step-00000001"));
  EXPECT_THAT(verify(temp / "step-00000001"), IsEmpty());
}

TEST(Save, RanksThatSaveDifferentStepsStop) {
  const TempFolder temp;
  on_ranks(2, [&](Group& group) {
    const FakeState state(group.rank(), 2);
    EXPECT_EQ(message_of([&] {
                save_state(state.source(), group, {temp.path(), 10 + group.rank(), 1, {}});
              }),
              "[checkpoint save] rank 1: it saves step 11, rank 0 saves step 10. Save the same on every rank.");
  });
  EXPECT_THAT(names_of(temp.path()), IsEmpty());
}

TEST(Save, AFolderThatCannotBeWrittenIsNamedOnEveryRank) {
  on_ranks(2, [&](Group& group) {
    const FakeState state(group.rank(), 2);
    const std::string said = message_of([&] { save_state(state.source(), group, {"/proc/none", 2, 1, {}}); });
    EXPECT_THAT(said, HasSubstr("[checkpoint save] rank 0: cannot make the folder /proc/none"));
  });
}

// A rank on a host with a disk of its own: the folder that rank 0 names is not there.
class OtherDisk : public FullGroup {
 public:
  explicit OtherDisk(Group& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const std::vector<int>& members() const override { return inner_.members(); }
  Handle all_gather(AllGather args) override { return inner_.all_gather(std::move(args)); }
  Handle reduce_scatter(ReduceScatter args) override { return inner_.reduce_scatter(std::move(args)); }
  Handle all_reduce(AllReduce args) override { return inner_.all_reduce(std::move(args)); }
  Handle broadcast(Broadcast args) override {
    char* const text = static_cast<char*>(args.data);
    const size_t nbytes = args.nbytes;
    const Handle handle = inner_.broadcast(std::move(args));
    handle.wait();
    if (std::string_view(text, nbytes).find(".tmp-") != std::string_view::npos) text[nbytes - 1] = 'x';
    return handle;
  }
  Handle exchange(Exchange args) override { return inner_.exchange(std::move(args)); }
  Handle barrier(Subject subject) override { return inner_.barrier(std::move(subject)); }
  std::unique_ptr<Group> channel(const std::string& name) override { return inner_.channel(name); }
  std::unique_ptr<Group> split(const std::string& name, const Parts& parts) override {
    return inner_.split(name, parts);
  }
  std::unique_ptr<Group> device_channel(const std::string&, int, void*, Reduce) override { return nullptr; }
  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override {
    return full(inner_).allocate(nbytes, std::move(ledger), kind);
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  Traffic traffic() const override { return inner_.traffic(); }
  std::string transport_name() const override { return inner_.transport_name(); }

 private:
  Group& inner_;
};

TEST(Save, ARankThatDoesNotSeeTheFolderOfRank0SaysToShareTheDisk) {
  const TempFolder temp;
  on_ranks(2, [&](Group& group) {
    const FakeState state(group.rank(), 2);
    OtherDisk other(group);
    Group& world = group.rank() == 0 ? group : other;
    const std::string said = message_of([&] { save_state(state.source(), world, {temp.path(), 2, 1, {}}); });
    EXPECT_THAT(said, HasSubstr("[checkpoint save] rank 1: " + temp.path()));
    EXPECT_THAT(said, HasSubstr("which rank 0 made, is not seen here. Save to a disk that all hosts share."));
  });
  EXPECT_THAT(names_of(temp.path()), IsEmpty());
}

TEST(Save, AStateThatDoesNotCoverEverythingIsNotPublished) {
  const TempFolder temp;
  auto world = make_single_group();
  const FakeState state(0, 1);
  StateSource source = state.source();
  source.runs.erase(source.runs.begin());
  EXPECT_THAT(message_of([&] {
                save_state(source, *world, {temp.path(), 1, 1, {}});
              }),
              HasSubstr("does not cover the weight of wte"));
  EXPECT_THAT(names_of(temp.path()), IsEmpty());
}

}  // namespace
}  // namespace shoal::checkpoint
