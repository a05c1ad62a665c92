#include "store/chunk_buffers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>

#include "message_of.h"
#include "temp_folder.h"
#include "unit/store/faulty_io.h"

namespace shoal {
namespace {

using MakeIo = std::function<std::unique_ptr<BlockIo>(int depth)>;

struct InAFile {
  explicit InAFile(int count, MakeIo make_io = nullptr)
      : file({.folder = folder.path(),
              .name = "chunks",
              .nbytes = ChunkBuffers::file_nbytes(sizes),
              .checksum = true,
              .make_io = std::move(make_io)}),
        buffers(file, sizes, count, [this](size_t nbytes) {
          return slab = Slab::create(nbytes, Slab::Backing::anonymous, ledger, MemoryKind::disk_buffers);
        }) {}

  testing::TempFolder folder;
  std::vector<size_t> sizes = {5000, 4096, 1, 12'000, 8192};
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  std::shared_ptr<Slab> slab;  // of the buffers; registered with the file, so it outlives it
  DiskFile file;
  ChunkBuffers buffers;
};

MakeIo failing(std::function<bool(const BlockRequest&)> fails) {
  return [fails](int depth) {
    return std::make_unique<testing::FaultyIo>(depth, [fails](const BlockRequest& request, int) {
      return testing::Fault{.error_number = fails(request) ? EIO : 0};
    });
  };
}

TEST(ChunkBuffers, WhatWasChangedComesBackInAnyOrder) {
  for (const int count : {1, 2, 3, 5, 9}) {
    InAFile in(count);
    std::vector<int> written(in.sizes.size(), 0);
    std::mt19937 random(7);
    for (int turn = 1; turn < 200; ++turn) {
      const auto chunk = static_cast<int>(random() % in.sizes.size());
      const size_t nbytes = in.sizes[static_cast<size_t>(chunk)];
      switch (random() % 4) {
        case 0:
          written[static_cast<size_t>(chunk)] = turn % 250;
          std::memset(in.buffers.change(chunk), turn % 250, nbytes);
          break;
        case 1:
          if (in.buffers.has(chunk)) in.buffers.store(chunk);
          break;
        case 2: in.buffers.expect(chunk); break;
        default: {
          const std::byte* bytes = in.buffers.look(chunk);
          const std::byte expected{static_cast<unsigned char>(written[static_cast<size_t>(chunk)])};
          ASSERT_EQ(bytes[0], expected) << count << " buffers, turn " << turn;
          ASSERT_EQ(bytes[nbytes - 1], expected);
        }
      }
    }
  }
}

TEST(ChunkBuffers, ABufferIsAsLargeAsTheLargestOfItsChunks) {
  EXPECT_EQ(InAFile(2).ledger->line(MemoryKind::disk_buffers).nbytes, 8192u + 12'288);
  EXPECT_EQ(InAFile(3).ledger->line(MemoryKind::disk_buffers).nbytes, 12'288u + 8192 + 4096);
}

TEST(ChunkBuffers, LookingAtWhatIsHereMovesNothing) {
  InAFile in(2);
  std::memset(in.buffers.change(0), 3, 5000);
  in.buffers.store(0);
  EXPECT_EQ(in.buffers.look(0)[4999], std::byte(3));
  in.buffers.look(1);
  in.buffers.look(0);
  EXPECT_EQ(in.file.counters().read_nbytes, 8192u + 4096);
}

TEST(ChunkBuffers, AReadThatFailedIsTriedAgainWhenItIsAskedForAgain) {
  std::atomic<bool> fails = true;
  InAFile in(1, failing([&](const BlockRequest& request) {
               return fails && request.kind == BlockRequest::Kind::read && request.offset == 0;
             }));
  for (int time = 0; time < 3; ++time) {
    const std::string message = testing::message_of([&] { in.buffers.look(0); });
    EXPECT_NE(message.find("EIO"), std::string::npos) << message;
    EXPECT_NE(message.find(in.file.path().string()), std::string::npos) << message;
  }
  EXPECT_EQ(in.buffers.look(3)[0], std::byte(0));  // another chunk of the buffer is not troubled by it
  fails = false;
  EXPECT_EQ(in.buffers.look(0)[0], std::byte(0));
}

TEST(ChunkBuffers, BytesWhoseWriteFailedAreKeptAndWrittenAgain) {
  std::atomic<int> writes = 0;
  InAFile in(1, failing([&](const BlockRequest& request) {
               return request.kind == BlockRequest::Kind::write && writes++ == 0;
             }));
  std::memset(in.buffers.change(1), 9, 4096);
  in.buffers.store(1);
  EXPECT_NE(testing::message_of([&] { in.buffers.look(2); }), "");
  EXPECT_EQ(in.buffers.look(1)[0], std::byte(9));
  in.buffers.look(2);
  EXPECT_EQ(in.buffers.look(1)[0], std::byte(9));
}

}  // namespace
}  // namespace shoal
