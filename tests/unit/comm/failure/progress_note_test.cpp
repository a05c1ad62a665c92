// Who is to blame for a collective that does not end, from what the ranks have told.
#include "comm/failure/progress_note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

constexpr uint64_t kWeights = 7, kGradients = 8;

// Has been given the collectives up to `newest`; the last `tail` numbers are another unit's.
LinkNote link_at(uint64_t newest, uint64_t link = kWeights, uint64_t other_from = 0) {
  LinkNote note;
  note.link = link;
  note.channel = link == kWeights ? "weights" : "gradients";
  for (uint64_t sequence = 1; sequence <= newest; ++sequence) {
    const bool other = other_from > 0 && sequence >= other_from;
    const std::string subject = (link == kWeights ? "gather of block." : "reduce of block.") +
                                std::to_string(sequence % 10) + (other ? ".other" : "");
    note.issue({sequence, std::hash<std::string>{}(subject), subject});
  }
  return note;
}

LinkNote under_way(LinkNote note, uint64_t sequence, bool begun = true) {
  note.under_way = sequence;
  note.begun = begun;
  return note;
}

HeardRank heard(std::vector<LinkNote> links, Timeout silent = 0ms) {
  return {ProgressNote{1, std::move(links)}, silent};
}

std::string cause(const std::map<int, HeardRank>& others, uint64_t sequence = 42) {
  const StuckCollective stuck{0, {0, 1, 2, 3}, under_way(link_at(44), sequence), sequence};
  return cause_of_progress(stuck, others, 5s, 2s);
}

TEST(ProgressNote, ANameWithLineEndsStaysOnItsLine) {
  ProgressNote note{1, {link_at(2)}};
  note.links[0].channel = "a\nlink 9";
  note.links[0].recent.back().subject = "gather of\r\nissued 0 0";
  const ProgressNote read = progress_note_from_text(to_text(note));
  ASSERT_EQ(read.links.size(), 1u);
  EXPECT_EQ(read.links[0].channel, "a link 9");
  EXPECT_EQ(read.links[0].recent.size(), 2u);
  EXPECT_EQ(read.links[0].newest(), 2u);
  EXPECT_EQ(read.links[0].recent.back().subject, "gather of  issued 0 0");
}

TEST(ProgressNote, SurvivesItsText) {
  ProgressNote note;
  note.beat = 17;
  note.links = {under_way(link_at(130), 129), link_at(0, kGradients)};
  note.links[1].left = true;
  note.links[1].channel = "";
  const ProgressNote again = progress_note_from_text(to_text(note));
  EXPECT_EQ(to_text(again), to_text(note));
  EXPECT_EQ(again.beat, 17u);
  ASSERT_EQ(again.links.size(), 2u);
  EXPECT_EQ(again.links[0].recent, note.links[0].recent);
  EXPECT_EQ(again.links[0].short_chain, note.links[0].short_chain);
  EXPECT_EQ(again.links[0].under_way, 129u);
  EXPECT_TRUE(again.links[0].begun);
  EXPECT_TRUE(again.links[1].left);
}

TEST(ProgressNote, KeepsTheLastCollectivesOnly) {
  EXPECT_EQ(link_at(1000).recent.size(), LinkNote::kRecent);
  EXPECT_EQ(link_at(1000).newest(), 1000u);
  EXPECT_EQ(link_at(1000).find(1), nullptr);
}

TEST(ProgressBlame, ARankThatDidNotComeIsNamedWithWhereItWasLast) {
  EXPECT_EQ(
      cause({{1, heard({link_at(42)})}, {2, heard({link_at(41)})}, {3, heard({link_at(43)})}}),
      "rank 2 did not arrive within 5 s, last at gather of block.1 (weights #41). Look at what rank 2 does there, "
      "or raise shoal.timeout_seconds.");
}

TEST(ProgressBlame, ARankThatIsStoppedIsSaidToBeSilent) {
  EXPECT_THAT(
      cause({{1, heard({link_at(42)})}, {2, heard({link_at(41)}, 4500ms)}, {3, heard({link_at(43)})}}),
      HasSubstr("rank 2 did not arrive within 5 s, last at gather of block.1 (weights #41); nothing was heard of "
                "rank 2 for 4.5 s"));
  // It had come already, but what moves its bytes stands still.
  EXPECT_THAT(cause({{1, heard({under_way(link_at(44), 42)})},
                     {2, heard({under_way(link_at(44), 42)})},
                     {3, heard({under_way(link_at(44), 42)}, 4500ms)}}),
              StartsWith("rank 3 came to it and hangs: nothing was heard of it for 4.5 s."));
}

TEST(ProgressBlame, ARankThatStoppedBeforeItsFirstWordIsNamed) {
  EXPECT_EQ(cause({{1, heard({link_at(42)})}, {2, {}}, {3, heard({link_at(42)})}}),
            "rank 2 did not arrive within 5 s; nothing was heard of rank 2 since the channel was opened: stopped, or "
            "cut off. Look at what rank 2 does there, or raise shoal.timeout_seconds.");
}

TEST(ProgressBlame, ARankWhoseGpuHasNotBegunIsNamed) {
  EXPECT_THAT(cause({{1, heard({under_way(link_at(44), 42)})},
                     {2, heard({under_way(link_at(44), 42, false)})},
                     {3, heard({under_way(link_at(44), 42)})}}),
              StartsWith("the GPU of rank 2 has not begun it within 5 s"));
}

TEST(ProgressBlame, ARankThatLeftIsNamed) {
  LinkNote left = link_at(40);
  left.left = true;
  EXPECT_THAT(cause({{1, heard({left})}, {2, heard({link_at(42)})}}),
              StartsWith("rank 1 left, last at gather of block.0 (weights #40): it destroyed its group"));
}

TEST(ProgressBlame, WhoHoldsUpTheLateOneIsNamed) {
  // Rank 1 is in a reduction on the other channel, to which rank 3 has not come.
  EXPECT_THAT(cause({{1, heard({link_at(41), under_way(link_at(9, kGradients), 9)})},
                     {2, heard({link_at(42), link_at(9, kGradients)})},
                     {3, heard({link_at(42), link_at(8, kGradients)})}}),
              StartsWith("rank 1 did not arrive within 5 s, held up by rank 3. Look at what rank 3 does"));
}

TEST(ProgressBlame, TheFewerWhoWentAnotherWayAreNamed) {
  EXPECT_EQ(
      cause({{1, heard({link_at(43)})}, {2, heard({link_at(43, kWeights, 41)})}, {3, heard({link_at(43)})}}),
      "rank 2 came to gather of block.1.other (weights #41) where rank 0 came to gather of block.1: the ranks run "
      "different units or models. Make every rank run the same units in the same order.");
  EXPECT_THAT(
      cause({{1, heard({link_at(43, kWeights, 41)})},
             {2, heard({link_at(43, kWeights, 41)})},
             {3, heard({link_at(43, kWeights, 41)})}}),
      StartsWith("rank 0 came to gather of block.1 (weights #41) where rank 1 came to gather of block.1.other"));
  // Of two ranks each blames the other.
  const StuckCollective stuck{0, {0, 1}, link_at(43), 42};
  EXPECT_THAT(cause_of_other_path(stuck, {{1, heard({link_at(43, kWeights, 42)})}}), StartsWith("rank 1 came to"));
}

TEST(ProgressBlame, RanksThatPartedLongAgoAreFoundByTheirChains) {
  const StuckCollective stuck{0, {0, 1, 2}, link_at(1500), 1500};
  const std::map<int, HeardRank> others = {{1, heard({link_at(1100, kWeights, 30)})}, {2, heard({link_at(1400)})}};
  EXPECT_THAT(cause_of_other_path(stuck, others),
              StartsWith("rank 1 went another way than the others at weights #1024 or before"));
  EXPECT_EQ(cause_of_other_path(stuck, {{1, heard({link_at(1100)})}, {2, heard({link_at(1400)})}}), "");
}

TEST(ProgressBlame, NobodyIsNamedWhereNothingIsKnown) {
  EXPECT_EQ(cause({}), "");
  EXPECT_EQ(cause({{1, heard({})}, {2, {}}}), "");
  EXPECT_EQ(cause({{1, heard({under_way(link_at(44), 42)})},
                   {2, heard({under_way(link_at(44), 42)})},
                   {3, heard({under_way(link_at(44), 42)})}}),
            "");
}

}  // namespace
}  // namespace shoal
