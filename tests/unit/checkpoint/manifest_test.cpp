#include "checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/checkpoint/sample_manifest.h"

namespace shoal::checkpoint {
namespace {

using shoal::testing::sample_manifest;

// The text is the format: a change here is a change for every reader.
TEST(Manifest, TextIsTheDocumentedOne) {
  EXPECT_EQ(write_manifest(sample_manifest()), R"({
  "format": "shoal checkpoint",
  "version": 1,
  "step": 120,
  "world": 2,
  "weights_only": false,
  "states": ["weight", "first_moment"],
  "progress": {"applied_steps": 100, "skipped_steps": 20, "loss_scale": 65536.5, "loss_scale_hysteresis_left": 2, "loss_scale_step": 119, "loss_scale_last_overflow": -1},
  "extra": {"model_config": "{\"a\": \"b\\n\"}", "position": "17"},
  "config": {"zero_optimization": {"stage": 3}},
  "files": [
    {"name": "rank-00000.bin", "nbytes": 8232},
    {"name": "rank-00001.bin", "nbytes": 8194}
  ],
  "random": [
    {"rank": 0, "file": "rank-00000.bin", "offset": 8192, "nbytes": 7, "checksum": "0000000000000037"}
  ],
  "parameters": [
    {"name": "w", "shape": [3, 5], "dtype": "fp32", "trainable": true, "aliases": ["tied"]},
    {"name": "none", "shape": [0, 2], "dtype": "fp32", "trainable": true},
    {"name": "frozen", "shape": [], "dtype": "bf16", "trainable": false}
  ],
  "pieces": [
    {"parameter": "w", "state": "weight", "begin": 0, "numel": 10, "dtype": "fp32", "file": "rank-00000.bin", "offset": 0, "checksum": "0000000000000001"},
    {"parameter": "w", "state": "first_moment", "begin": 0, "numel": 10, "dtype": "fp32", "file": "rank-00000.bin", "offset": 4096, "checksum": "0000000000000002"},
    {"parameter": "w", "state": "weight", "begin": 10, "numel": 5, "dtype": "fp32", "file": "rank-00001.bin", "offset": 0, "checksum": "fedcba9876543210"},
    {"parameter": "w", "state": "first_moment", "begin": 10, "numel": 5, "dtype": "fp32", "file": "rank-00001.bin", "offset": 4096, "checksum": "0000000000000004"},
    {"parameter": "frozen", "state": "weight", "begin": 0, "numel": 1, "dtype": "bf16", "file": "rank-00001.bin", "offset": 8192, "checksum": "0000000000000005"}
  ],
  "manifest_checksum": "45320528a0f08c60"
}
)");
}

TEST(Manifest, NamesAPieceInWords) {
  const Manifest manifest = sample_manifest();
  EXPECT_EQ(manifest.describe(manifest.pieces[3]), "first_moment of w, elements 10 to 14");
}

TEST(Manifest, CountsElements) {
  EXPECT_EQ(sample_manifest().params[0].numel(), 15);
  EXPECT_EQ(sample_manifest().params[1].numel(), 0);
  EXPECT_EQ(sample_manifest().params[2].numel(), 1);
}

TEST(Manifest, PartOfARankReadsBack) {
  RankPart part;
  part.file = {"rank-00003.bin", 12345};
  part.random = {0, 0, 8192, 99, 0xffffffffffffffff};
  part.pieces = {{4, StateKind::second_moment, 1, 2, DType::bf16, 0, 4096, 0x8000000000000001}};
  const RankPart back = parse_rank_part(write_rank_part(part));
  EXPECT_EQ(back.file.name, "rank-00003.bin");
  EXPECT_EQ(back.file.nbytes, 12345);
  EXPECT_EQ(back.random.offset, 8192);
  EXPECT_EQ(back.random.nbytes, 99);
  EXPECT_EQ(back.random.digest, 0xffffffffffffffff);
  ASSERT_EQ(back.pieces.size(), 1u);
  const Piece& piece = back.pieces[0];
  EXPECT_EQ(std::tuple(piece.param, piece.kind, piece.begin, piece.numel, piece.dtype, piece.offset, piece.digest),
            std::tuple(4, StateKind::second_moment, 1, 2, DType::bf16, 4096, 0x8000000000000001));
}

}  // namespace
}  // namespace shoal::checkpoint
