#include "checkpoint/rank_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temp_folder.h"
#include "training/outcome.h"
#include "unit/checkpoint/fake_state.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::FakeState;
using shoal::testing::message_of;
using shoal::testing::TempFolder;
using ::testing::HasSubstr;

Manifest names_of_params(const FakeState& state) {
  Manifest manifest;
  for (const ParamInfo& param : state.params_) manifest.params.push_back({param.name, {}, param.shape});
  return manifest;
}

TEST(RankFile, PiecesAreAlignedBoundedAndReadBack) {
  FakeState state(0, 1);
  state.fill();
  const Manifest manifest = names_of_params(state);
  for (const int64_t piece_numel : {1, 7, 1000000}) {
    const TempFolder temp;
    const RankPart part = write_rank_file(temp / "rank-00000.bin", state.source(), piece_numel);
    EXPECT_EQ(part.file.name, "rank-00000.bin");
    const DurableFile file = DurableFile::open_read(temp / "rank-00000.bin");
    EXPECT_EQ(file.nbytes(), part.file.nbytes);
    int64_t numel = 0;
    for (const Piece& piece : part.pieces) {
      EXPECT_EQ(piece.offset % kAlignment, 0);
      EXPECT_LE(piece.numel, piece_numel);
      numel += piece.numel;
      const std::vector<float> values = read_piece(file, manifest, piece);
      const std::vector<float>& expected = state.values_.at({piece.param, piece.kind});
      EXPECT_EQ(values,
                std::vector<float>(expected.begin() + piece.begin, expected.begin() + piece.begin + piece.numel));
    }
    EXPECT_EQ(numel, 3 * (37 * 3 + 5 * 7 + 1) + 24);
    EXPECT_EQ(read_checked(file, part.random.offset, part.random.nbytes, part.random.digest, "random"),
              state.progress_.random_state);
  }
}

TEST(RankFile, OnlyFrozenWeightsKeepTheirDtype) {
  FakeState state(0, 1);
  const TempFolder temp;
  for (const Piece& piece : write_rank_file(temp / "a", state.source()).pieces) {
    EXPECT_EQ(piece.dtype, piece.param == 2 ? DType::bf16 : DType::f32);
  }
}

TEST(RankFile, ADamagedPieceIsNamed) {
  FakeState state(0, 1);
  state.fill();
  const TempFolder temp;
  const RankPart part = write_rank_file(temp / "a", state.source());
  const Piece& piece = part.pieces[1];
  shoal::testing::flip_bit(temp / "a", piece.offset + 5);
  const DurableFile file = DurableFile::open_read(temp / "a");
  EXPECT_THAT(message_of([&] { read_piece(file, names_of_params(state), piece); }),
              HasSubstr("/a: first_moment of wte, elements 0 to 110 (bytes 4096 to 4539) is damaged"));
  EXPECT_EQ(message_of([&] { read_piece(file, names_of_params(state), part.pieces[0]); }), "");
}

TEST(RankFile, AFullDiskIsAnError) {
  FakeState state(0, 1);
  EXPECT_THAT(message_of([&] { write_rank_file("/dev/full", state.source()); }), HasSubstr("(ENOSPC)"));
}

TEST(RankFile, NamesSortByRank) { EXPECT_EQ(rank_file_name(12), "rank-00012.bin"); }

}  // namespace
}  // namespace shoal::checkpoint
