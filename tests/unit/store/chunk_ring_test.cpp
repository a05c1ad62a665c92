#include "store/chunk_ring.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <thread>

#include "message_of.h"
#include "temp_folder.h"
#include "unit/store/faulty_io.h"

namespace shoal {
namespace {

// Chunks of odd sizes; each byte of chunk i counts the rounds it went through.
struct Rounds {
  explicit Rounds(int buffers, std::function<std::unique_ptr<BlockIo>(int)> make_io = nullptr)
      : file({.folder = folder.path(),
              .name = "chunks",
              .nbytes = ChunkBuffers::file_nbytes(sizes),
              .checksum = true,
              .make_io = std::move(make_io)}),
        ring(file, sizes, buffers, ledger) {}

  void round() {
    ring.read_ahead();
    for (int chunk = 0; chunk < static_cast<int>(sizes.size()); ++chunk) {
      ring.take(chunk);
      std::byte* bytes = ring.memory(chunk);
      for (size_t i = 0; i < sizes[static_cast<size_t>(chunk)]; ++i) {
        bytes[i] = std::byte(static_cast<unsigned char>(std::to_integer<int>(bytes[i]) + chunk + 1));
      }
      ring.give(chunk);
    }
  }
  bool holds(int chunk, int rounds) {
    const std::byte* bytes = ring.look(chunk);
    return std::all_of(bytes, bytes + sizes[static_cast<size_t>(chunk)], [&](std::byte byte) {
      return byte == std::byte(static_cast<unsigned char>((chunk + 1) * rounds));
    });
  }

  testing::TempFolder folder;
  std::vector<size_t> sizes = {5000, 4096, 1, 12'000, 8192};
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  DiskFile file;
  ChunkRing ring;
};

TEST(ChunkRing, WhatWasGivenComesBackWithAnyNumberOfBuffers) {
  for (const int buffers : {1, 2, 3, 5, 9}) {
    Rounds rounds(buffers);
    for (int i = 0; i < 7; ++i) rounds.round();
    for (int chunk = 0; chunk < 5; ++chunk)
      EXPECT_TRUE(rounds.holds(chunk, 7)) << buffers << " buffers, chunk " << chunk;
  }
}

TEST(ChunkRing, TakesItsBuffersAndNoMore) {
  EXPECT_EQ(Rounds(2).ledger->line(MemoryKind::disk_buffers).nbytes, 8192u + 12'288);
  EXPECT_EQ(Rounds(9).ledger->line(MemoryKind::disk_buffers).nbytes, 8192u + 4096 + 4096 + 12'288 + 8192);
}

TEST(ChunkRing, MovesEveryByteOnceEachWayARound) {
  Rounds rounds(2);
  rounds.round();
  for (int chunk = 0; chunk < 5; ++chunk) rounds.ring.look(chunk);  // the last writes are over
  const DiskFile::Counters before = rounds.file.counters();
  rounds.round();
  rounds.round();
  const size_t whole = ChunkBuffers::file_nbytes(rounds.sizes);
  for (int chunk = 0; chunk < 5; ++chunk) rounds.ring.look(chunk);
  const DiskFile::Counters after = rounds.file.counters();
  EXPECT_EQ(after.written_nbytes - before.written_nbytes, 2 * whole);
  EXPECT_GE(after.read_nbytes - before.read_nbytes, 2 * whole);
  EXPECT_LE(after.read_nbytes - before.read_nbytes, 4 * whole);  // with what was looked at, and what was read ahead
}

// A disk that is done at once: what runs ahead has always arrived.
class InstantIo final : public BlockIo {
 public:
  void start(BlockRequest request) override {
    const auto offset = static_cast<off_t>(request.offset);
    request.done(request.kind == BlockRequest::Kind::read
                     ? ::pread(request.fd, request.memory, request.nbytes, offset)
                     : ::pwrite(request.fd, request.memory, request.nbytes, offset));
  }
  bool register_memory(std::byte*, size_t) override { return false; }
  std::string description() const override { return "instant"; }
};

TEST(ChunkRing, ReadsNoChunkTwiceInARoundWithAnyNumberOfBuffers) {
  for (const int buffers : {1, 2, 3, 4}) {
    Rounds rounds(buffers, [](int) { return std::make_unique<InstantIo>(); });
    rounds.round();
    const uint64_t before = rounds.file.counters().read_nbytes;
    for (int i = 0; i < 6; ++i) rounds.round();
    std::vector<size_t> sharing;  // a chunk that has its buffer alone stays there
    for (size_t chunk = 0; chunk < rounds.sizes.size(); ++chunk) {
      const auto step = static_cast<size_t>(buffers);
      if (chunk + step < rounds.sizes.size() || chunk >= step) sharing.push_back(rounds.sizes[chunk]);
    }
    EXPECT_EQ(rounds.file.counters().read_nbytes - before, 6 * ChunkBuffers::file_nbytes(sharing))
        << buffers << " buffers";
  }
}

// A disk whose next read, once told so, comes late.
class LateIo final : public BlockIo {
 public:
  explicit LateIo(std::atomic<bool>& next_is_late) : next_is_late_(next_is_late) {}
  ~LateIo() override {
    for (std::thread& thread : late_) thread.join();
  }
  void start(BlockRequest request) override {
    if (request.kind == BlockRequest::Kind::read && next_is_late_.exchange(false)) {
      late_.emplace_back([request = std::move(request)]() mutable {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        InstantIo().start(std::move(request));
      });
      return;
    }
    InstantIo().start(std::move(request));
  }
  bool register_memory(std::byte*, size_t) override { return false; }
  std::string description() const override { return "late"; }

 private:
  std::atomic<bool>& next_is_late_;
  std::vector<std::thread> late_;
};

TEST(ChunkRing, AReadThatNobodyWantsAnyMoreDoesNotComeOverTheNextOne) {
  std::atomic<bool> next_is_late = false;
  Rounds rounds(1, [&](int) { return std::make_unique<LateIo>(next_is_late); });
  for (int i = 0; i < 3; ++i) rounds.round();
  rounds.ring.look(2);
  next_is_late = true;
  rounds.ring.read_ahead();  // of chunk 0, into the only buffer
  EXPECT_FALSE(next_is_late);
  EXPECT_TRUE(rounds.holds(3, 3));
}

TEST(ChunkRing, WhatCouldNotBeWrittenIsNotForgotten) {
  testing::TempFolder folder;
  const std::vector<size_t> sizes = {4096, 4096};
  std::atomic<int> writes = 0;
  DiskFile::Options options{.folder = folder.path(), .name = "chunks", .nbytes = ChunkBuffers::file_nbytes(sizes)};
  options.make_io = [&](int depth) {
    return std::make_unique<testing::FaultyIo>(depth, [&](const BlockRequest& request, int) {
      const bool first_write = request.kind == BlockRequest::Kind::write && writes++ == 0;
      return testing::Fault{.error_number = first_write ? EIO : 0};
    });
  };
  DiskFile file(options);
  ChunkRing ring(file, sizes, 1, std::make_shared<Ledger>());
  std::memset(ring.change(0), 7, 4096);
  EXPECT_NE(testing::message_of([&] { ring.look(1); }), "");  // chunk 0 must be written first, and is not
  EXPECT_EQ(ring.look(1)[0], std::byte(0));                   // written at the second try
  EXPECT_EQ(ring.look(0)[0], std::byte(7));
}

TEST(ChunkRing, WhatIsChangedOutsideOfTheOrderIsSeenInsideIt) {
  Rounds rounds(2);
  for (const int chunk : {3, 0, 4, 1, 2}) {
    std::memset(rounds.ring.change(chunk), 10 * chunk, rounds.sizes[static_cast<size_t>(chunk)]);
  }
  rounds.round();
  for (int chunk = 0; chunk < 5; ++chunk) {
    EXPECT_EQ(rounds.ring.look(chunk)[0], std::byte(static_cast<unsigned char>(11 * chunk + 1))) << chunk;
  }
}

TEST(ChunkRing, WhatWasReadAheadAndNotTakenIsThereLater) {
  Rounds rounds(3);
  rounds.round();
  rounds.ring.read_ahead();  // of a step that is then skipped
  EXPECT_TRUE(rounds.holds(4, 1));
  rounds.round();
  for (int chunk = 0; chunk < 5; ++chunk) EXPECT_TRUE(rounds.holds(chunk, 2));
}

TEST(ChunkRing, DamageIsNamedWhenTheChunkIsNeeded) {
  Rounds rounds(1);
  rounds.round();
  rounds.ring.look(0);
  std::filesystem::resize_file(rounds.file.path(), 4096);
  const std::string message = testing::message_of([&] { rounds.ring.look(3); });
  EXPECT_NE(message.find(rounds.file.path().string()), std::string::npos) << message;
}

}  // namespace
}  // namespace shoal
