#include "checkpoint/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "checkpoint/run_folder.h"
#include "checkpoint/save.h"
#include "temp_folder.h"
#include "unit/checkpoint/fake_state.h"
#include "unit/checkpoint/on_ranks.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::FakeState;
using shoal::testing::flip_bit;
using shoal::testing::TempFolder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Verify : public ::testing::Test {
 protected:
  Verify() {
    shoal::testing::on_ranks(2, [&](Group& group) {
      FakeState state(group.rank(), 2);
      state.fill();
      save_state(state.source(), group, {temp_.path(), 1, 0, {}});
    });
    path_ = temp_ / "step-00000001";
    manifest_ = read_manifest(path_);
  }
  TempFolder temp_;
  std::string path_;
  Manifest manifest_;
};

TEST_F(Verify, FindsNothingInAWholeCheckpoint) { EXPECT_THAT(verify(path_), IsEmpty()); }

TEST_F(Verify, NamesThePieceOfAFlippedBit) {
  for (const Piece& piece : manifest_.pieces) {
    const std::string file = path_ + "/" + manifest_.files[static_cast<size_t>(piece.file)].name;
    flip_bit(file, piece.offset + piece.nbytes() - 1, 7);
    EXPECT_THAT(verify(path_), ElementsAre(HasSubstr("is damaged: " + manifest_.describe(piece) + " (bytes ")));
    flip_bit(file, piece.offset + piece.nbytes() - 1, 7);
  }
  flip_bit(path_ + "/rank-00001.bin", manifest_.randoms[1].offset);
  EXPECT_THAT(verify(path_), ElementsAre(HasSubstr("rank-00001.bin is damaged: the random state of rank 1")));
}

TEST_F(Verify, FindsABitFlippedAnywhere) {
  std::mt19937 random(3);
  for (const char* name : {"/rank-00000.bin", "/rank-00001.bin", "/manifest.json"}) {
    const std::string file = path_ + name;
    const auto nbytes = static_cast<int64_t>(std::filesystem::file_size(file)) - 1;
    for (int i = 0; i < 100; ++i) {
      const int64_t offset = std::uniform_int_distribution<int64_t>(0, nbytes)(random);
      const int bit = static_cast<int>(random() % 8);
      flip_bit(file, offset, bit);
      EXPECT_THAT(verify(path_), ::testing::SizeIs(1)) << file << " byte " << offset;
      flip_bit(file, offset, bit);
    }
  }
  EXPECT_THAT(verify(path_), IsEmpty());
}

TEST_F(Verify, NamesWhatATruncatedFileLost) {
  const Piece* last = nullptr;
  for (const Piece& piece : manifest_.pieces) {
    if (piece.file == 0) last = &piece;
  }
  std::filesystem::resize_file(path_ + "/rank-00000.bin", static_cast<uintmax_t>(last->offset + last->nbytes() - 1));
  EXPECT_THAT(verify(path_), ElementsAre(HasSubstr("rank-00000.bin is truncated: it has"), HasSubstr("random state")));
  EXPECT_THAT(verify(path_), Contains(HasSubstr("lost: " + manifest_.describe(*last))));
}

TEST_F(Verify, NamesWhatAMissingFileHeld) {
  std::filesystem::remove(path_ + "/rank-00001.bin");
  const std::vector<std::string> problems = verify(path_);
  for (const Piece& piece : manifest_.pieces) {
    if (piece.file != 1) continue;
    EXPECT_THAT(problems, Contains("rank-00001.bin is missing; lost: " + manifest_.describe(piece)));
  }
}

TEST_F(Verify, FindsWhatWasAdded) {
  std::filesystem::resize_file(path_ + "/rank-00001.bin", static_cast<uintmax_t>(manifest_.files[1].nbytes) + 1);
  EXPECT_THAT(verify(path_), ElementsAre(HasSubstr("something was added")));
}

TEST_F(Verify, SaysWhatIsWrongWithTheManifest) {
  std::filesystem::remove(path_ + "/manifest.json");
  EXPECT_THAT(verify(path_), ElementsAre(HasSubstr("has no manifest.json")));
  EXPECT_THAT(verify(temp_ / "none"), ElementsAre(HasSubstr("is not there")));
}

}  // namespace
}  // namespace shoal::checkpoint
