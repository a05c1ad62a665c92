#include "optim/state_stream.h"

#include <gtest/gtest.h>

#include <cstring>

#include "device/host_queue.h"
#include "unit/optim/far_queue.h"
#include "unit/optim/named_copy_streams.h"

namespace shoal {
namespace {

const std::vector<size_t> kChunks = {1000, 24, 3000, 512, 700, 700, 8};

std::shared_ptr<Slab> home_of(const std::shared_ptr<Ledger>& ledger) {
  size_t nbytes = 0;
  for (const size_t chunk : kChunks) nbytes += chunk;
  return Slab::create(nbytes, Slab::Backing::anonymous, ledger, MemoryKind::host_states);
}

// Adds one to every byte of every chunk in the ring.
void go_round(StateStream& stream) {
  for (int chunk = 0; chunk < static_cast<int>(kChunks.size()); ++chunk) {
    stream.take(chunk);
    for (size_t i = 0; i < kChunks[static_cast<size_t>(chunk)]; ++i) {
      stream.memory(chunk)[i] = std::byte(static_cast<unsigned char>(stream.memory(chunk)[i]) + 1);
    }
    stream.give(chunk);
  }
}

void expect_all(StateStream& stream, int value) {
  for (int chunk = 0; chunk < static_cast<int>(kChunks.size()); ++chunk) {
    const std::byte* bytes = stream.look(chunk);
    for (size_t i = 0; i < kChunks[static_cast<size_t>(chunk)]; ++i) {
      ASSERT_EQ(static_cast<int>(bytes[i]), value) << "chunk " << chunk << " byte " << i;
    }
  }
}

TEST(StateStream, EveryRoundWorksOnWhatTheLastOneLeftInRingsOfAnySize) {
  for (const size_t staging : {size_t{0}, size_t{4000}, size_t{1} << 20}) {
    const auto ledger = std::make_shared<Ledger>();
    const auto queue = make_host_queue();
    {
      StateStream stream(home_of(ledger), kChunks, staging, *queue, ledger);
      EXPECT_EQ(ledger->line(MemoryKind::state_ring).nbytes, ring_nbytes(kChunks, staging));
      for (int round = 1; round <= 30; ++round) {
        if (round % 3 != 0) stream.read_ahead();
        go_round(stream);
        if (round % 7 == 0) expect_all(stream, round);
      }
      expect_all(stream, 30);
      // Nothing stays in the ring from one round to the next; the ring is filled for one more.
      constexpr uint64_t kAll = 1000 + 24 + 3000 + 512 + 700 + 700 + 8;
      EXPECT_EQ(stream.counters().taken_nbytes, 30 * kAll);
      EXPECT_GT(stream.counters().brought_nbytes, 30 * kAll);
      EXPECT_LE(stream.counters().brought_nbytes, 30 * kAll + stream.ring_nbytes());
    }
    EXPECT_EQ(ledger->total_nbytes(), 0u);
  }
}

TEST(StateStream, WhatIsChangedBetweenRoundsIsBroughtAnew) {
  const auto ledger = std::make_shared<Ledger>();
  const auto queue = make_host_queue();
  StateStream stream(home_of(ledger), kChunks, 1 << 20, *queue, ledger);
  go_round(stream);
  stream.read_ahead();  // the old bytes are on their way
  for (int chunk = 0; chunk < static_cast<int>(kChunks.size()); ++chunk) {
    std::memset(stream.change(chunk), 40, kChunks[static_cast<size_t>(chunk)]);
  }
  go_round(stream);
  expect_all(stream, 41);
}

TEST(StateStream, TheRingGrowsBetweenRounds) {
  const auto ledger = std::make_shared<Ledger>();
  const auto queue = make_host_queue();
  StateStream stream(home_of(ledger), kChunks, 0, *queue, ledger);
  go_round(stream);
  stream.read_ahead();
  EXPECT_TRUE(stream.grow(5000));
  EXPECT_EQ(ledger->line(MemoryKind::state_ring).nbytes, ring_nbytes(kChunks, 5000));
  EXPECT_FALSE(stream.grow(4000));
  go_round(stream);
  EXPECT_TRUE(stream.grow(1 << 20));
  go_round(stream);
  expect_all(stream, 3);
}

TEST(StateStream, ChunksThatAreLeftOutStayInHostMemory) {
  const auto ledger = std::make_shared<Ledger>();
  const auto queue = make_host_queue();
  for (const size_t staging : {size_t{0}, size_t{4000}, size_t{1} << 20}) {
    StateStream stream(home_of(ledger), kChunks, staging, *queue, ledger);
    go_round(stream);
    stream.read_ahead();
    const std::vector<int> left_out = {2, 6};
    const std::vector<std::byte*> homes = stream.leave_out(left_out);
    EXPECT_EQ(stream.streamed_nbytes(), size_t{1000 + 24 + 512 + 700 + 700});
    const auto expect_home = [&](size_t i) {
      for (size_t byte = 0; byte < kChunks[static_cast<size_t>(left_out[i])]; ++byte) {
        ASSERT_EQ(static_cast<int>(homes[i][byte]), 1) << "chunk " << left_out[i] << " byte " << byte;
      }
    };
    for (const size_t i : {0, 1}) expect_home(i);
    for (int round = 0; round < 5; ++round) {
      if (round % 2 == 0) stream.read_ahead();
      for (const int chunk : {0, 1, 3, 4, 5}) {
        stream.take(chunk);
        for (size_t i = 0; i < kChunks[static_cast<size_t>(chunk)]; ++i) {
          stream.memory(chunk)[i] = std::byte(static_cast<unsigned char>(stream.memory(chunk)[i]) + 1);
        }
        stream.give(chunk);
      }
    }
    for (size_t i = 0; i < left_out.size(); ++i) {
      EXPECT_EQ(homes[i], stream.look(left_out[i]));
      expect_home(i);
      std::memset(homes[i], 6, kChunks[static_cast<size_t>(left_out[i])]);
    }
    expect_all(stream, 6);
  }
}

// A device that has no room for a second ring of more than the first one's size.
TEST(StateStream, AGrowthThatCannotBeHadLeavesTheRingAsItWas) {
  const auto ledger = std::make_shared<Ledger>();
  testing::FarQueue far;
  StateStream stream(home_of(ledger), kChunks, 0, far, ledger);
  go_round(stream);
  const size_t before = stream.ring_nbytes();
  far.refuse_above(before);
  EXPECT_TRUE(stream.grow(1 << 20));
  EXPECT_EQ(stream.ring_nbytes(), before);
  go_round(stream);
  expect_all(stream, 2);
}

TEST(StateStream, WaitsForItHaveAName) {
  const auto name = std::make_shared<std::string>();
  testing::FarQueue queue;
  queue.streams = [&] { return std::make_unique<testing::NamedCopyStreams>(name); };
  const auto ledger = std::make_shared<Ledger>();
  const StateStream stream(home_of(ledger), kChunks, 0, queue, ledger);
  EXPECT_EQ(*name, "host: states");
}

}  // namespace
}  // namespace shoal
