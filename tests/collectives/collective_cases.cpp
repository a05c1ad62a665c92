// See collective_cases.h. It looks at millions of elements one by one, and is optimized where other tests are not.
#include "collectives/collective_cases.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "kernels/element.h"

namespace shoal::testing {

const char* name_of(Memory memory) { return memory == Memory::of_group ? "of_group" : "foreign"; }

float brought(int rank, int64_t i, int salt) {
  const uint32_t mixed = static_cast<uint32_t>((i + 1) * 2654435761u) ^ static_cast<uint32_t>(rank * 40503 + salt * 97);
  const float small = static_cast<float>((mixed >> 8) & 0xffff) / 4096.0f - 8.0f;
  return rank % 2 == 0 ? small * 37.0f : small / 3.0f;
}

void fill(void* memory, DType dtype, int64_t numel, int rank, int salt) {
  for (int64_t i = 0; i < numel; ++i) kernels::store_element(memory, dtype, i, brought(rank, i, salt));
}

float expected_sum(int world, DType dtype, int64_t i, int salt, std::optional<float> sum, int group) {
  std::optional<float> of_group;
  for (int rank = 0; rank < world; ++rank) {
    uint32_t stored = 0;
    kernels::store_element(&stored, dtype, 0, brought(rank, i, salt));
    const float part = kernels::load_element(&stored, dtype, 0);
    std::optional<float>& to = group == 0 ? sum : of_group;
    to = to ? *to + part : part;
    if (group == 0 || ((rank + 1) % group != 0 && rank + 1 < world)) continue;
    sum = sum ? *sum + *of_group : *of_group;
    of_group.reset();
  }
  return *sum;
}

bool same_element(const void* got, DType dtype, int64_t i, float expected) {
  uint32_t bits = 0;
  kernels::store_element(&bits, dtype, 0, expected);
  const size_t nbytes = nbytes_of(dtype);
  return std::memcmp(static_cast<const std::byte*>(got) + static_cast<size_t>(i) * nbytes, &bits, nbytes) == 0;
}

void check_all_gather(Group& group, Memory memory, size_t shard_nbytes, bool in_place) {
  const auto byte_at = [](int rank, size_t i) {
    return static_cast<std::byte>((i * 7 + static_cast<size_t>(rank) * 31) % 251);
  };
  Buffer whole(group, memory, shard_nbytes * static_cast<size_t>(group.size()));
  Buffer apart(group, memory, shard_nbytes);
  std::byte* shard = in_place ? whole.data() + shard_nbytes * static_cast<size_t>(group.rank()) : apart.data();
  for (size_t i = 0; i < shard_nbytes; ++i) shard[i] = byte_at(group.rank(), i);
  std::atomic<int> after_calls{0};
  group.all_gather({{"gather", "case"}, shard, whole.data(), shard_nbytes, whole.keep(), [&] { ++after_calls; }})
      .wait();
  EXPECT_EQ(after_calls, 1);
  size_t wrong = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    for (size_t i = 0; i < shard_nbytes; ++i) {
      wrong += whole.data()[static_cast<size_t>(rank) * shard_nbytes + i] != byte_at(rank, i);
    }
  }
  EXPECT_EQ(wrong, 0u) << "all_gather of " << shard_nbytes << " bytes, in place " << in_place;
}

void check_reduce_scatter(Group& group, Memory memory, const ReduceCase& c) {
  const int world = group.size();
  const size_t slice_nbytes = static_cast<size_t>(c.shard_numel) * nbytes_of(c.in);
  Buffer whole(group, memory, slice_nbytes * static_cast<size_t>(world));
  Buffer apart(group, memory, static_cast<size_t>(c.shard_numel) * nbytes_of(c.out));
  fill(whole.data(), c.in, c.shard_numel * world, group.rank(), 1);
  std::byte* shard = c.in_place ? whole.data() + slice_nbytes * static_cast<size_t>(group.rank()) : apart.data();
  if (c.carry != 0) fill(shard, c.out, c.shard_numel, group.rank(), 2);
  std::vector<std::byte> before(shard, shard + static_cast<size_t>(c.shard_numel) * nbytes_of(c.out));
  const float post = 1.0f / static_cast<float>(world);
  std::atomic<int> after_calls{0};
  ReduceScatter args;
  args.subject = {"reduce", "case"};
  args.whole = whole.data();
  args.whole_dtype = c.in;
  args.shard = shard;
  args.shard_dtype = c.out;
  args.shard_numel = c.shard_numel;
  args.carry = c.carry;
  args.post = post;
  args.groups.size = c.group;
  args.piece_numel = c.piece_numel;
  args.after = [&] { ++after_calls; };
  args.keep = whole.keep();
  group.reduce_scatter(args).wait();
  EXPECT_EQ(after_calls, 1);
  int64_t wrong = 0;
  for (int64_t i = 0; i < c.shard_numel; ++i) {
    std::optional<float> there;
    if (c.carry != 0) there = c.carry * kernels::load_element(before.data(), c.out, i);
    const float sum = expected_sum(world, c.in, group.rank() * c.shard_numel + i, 1, there, c.group);
    wrong += !same_element(shard, c.out, i, post * sum);
  }
  EXPECT_EQ(wrong, 0) << "reduce_scatter " << shoal::name_of(c.in) << " to " << shoal::name_of(c.out) << ", shard of "
                      << c.shard_numel << ", in place " << c.in_place << ", carry " << c.carry << ", piece "
                      << c.piece_numel << ", groups of " << c.group;
}

void check_all_reduce(Group& group, Memory memory, DType dtype, int64_t numel) {
  const float post = 1.0f / static_cast<float>(group.size());
  Buffer data(group, memory, static_cast<size_t>(numel) * nbytes_of(dtype));
  fill(data.data(), dtype, numel, group.rank(), 3);
  group.all_reduce({{"sum", "case"}, data.data(), dtype, numel, post, data.keep()}).wait();
  int64_t wrong = 0;
  for (int64_t i = 0; i < numel; ++i) {
    wrong += !same_element(data.data(), dtype, i, expected_sum(group.size(), dtype, i, 3) * post);
  }
  EXPECT_EQ(wrong, 0) << "all_reduce " << shoal::name_of(dtype) << " of " << numel;
}

void check_broadcast(Group& group, Memory memory, size_t nbytes, int root) {
  Buffer data(group, memory, nbytes);
  const auto byte_at = [&](size_t i) { return static_cast<std::byte>((i * 13 + static_cast<size_t>(root)) % 253); };
  for (size_t i = 0; i < nbytes; ++i) data.data()[i] = group.rank() == root ? byte_at(i) : std::byte{0};
  group.broadcast({{"publish", "case"}, data.data(), nbytes, root, data.keep()}).wait();
  size_t wrong = 0;
  for (size_t i = 0; i < nbytes; ++i) wrong += data.data()[i] != byte_at(i);
  EXPECT_EQ(wrong, 0u) << "broadcast of " << nbytes << " bytes from rank " << root;
}

void check_exchange(Group& group, Memory memory, size_t slice_nbytes, Delivery way, size_t piece_nbytes) {
  const auto byte_at = [](int from, int to, size_t i) {
    return static_cast<std::byte>((i * 11 + static_cast<size_t>(from) * 17 + static_cast<size_t>(to) * 71) % 255);
  };
  const auto world = static_cast<size_t>(group.size());
  Buffer slices(group, memory, slice_nbytes * world);
  Buffer received(group, memory, slice_nbytes * world);
  for (int to = 0; to < group.size(); ++to) {
    for (size_t i = 0; i < slice_nbytes; ++i) {
      slices.data()[static_cast<size_t>(to) * slice_nbytes + i] = byte_at(group.rank(), to, i);
    }
  }
  std::atomic<int> after_calls{0};
  size_t covered = 0;
  Exchange args;
  args.subject = {"exchange", "case"};
  args.slices = slices.data();
  args.slice_nbytes = slice_nbytes;
  args.piece_nbytes = piece_nbytes;
  args.after = [&] { ++after_calls; };
  args.keep = slices.keep();
  if (way == Delivery::received) {
    args.received = received.data();
  } else {
    args.take = [&](const Exchange::Part& part) {
      EXPECT_EQ(part.begin, covered);
      EXPECT_EQ(part.begin % 64, 0u);
      covered += part.nbytes;
      for (size_t rank = 0; rank < world; ++rank) {
        std::memcpy(received.data() + rank * slice_nbytes + part.begin, part.sources[rank], part.nbytes);
      }
    };
  }
  const uint64_t sent = group.traffic().sent_nbytes;
  group.exchange(args).wait();
  EXPECT_EQ(group.traffic().sent_nbytes - sent, (world - 1) * slice_nbytes);
  EXPECT_EQ(after_calls, 1);
  EXPECT_EQ(covered, way == Delivery::taken ? slice_nbytes : 0);
  size_t wrong = 0;
  for (int from = 0; from < group.size(); ++from) {
    for (size_t i = 0; i < slice_nbytes; ++i) {
      wrong += received.data()[static_cast<size_t>(from) * slice_nbytes + i] != byte_at(from, group.rank(), i);
    }
  }
  EXPECT_EQ(wrong, 0u) << "exchange of " << slice_nbytes << " bytes, piece " << piece_nbytes;
}

void check_collectives(Group& group, Memory memory, bool large) {
  SCOPED_TRACE(::testing::Message() << "rank " << group.rank() << " of " << group.size() << ", memory "
                                    << name_of(memory));
  const std::vector<size_t> nbytes{0, 1, 3, 64, 4097};
  const std::vector<int64_t> numels{0, 1, 3, 64, 1025, 9001};
  if (large) {
    check_all_gather(group, memory, (size_t{9} << 20) + 5, true);
    check_broadcast(group, memory, (size_t{9} << 20) + 5, group.size() - 1);
    for (const Delivery way : {Delivery::received, Delivery::taken})
      check_exchange(group, memory, (size_t{5} << 20) + 5, way);
    check_all_reduce(group, memory, DType::bf16, (int64_t{5} << 20) + 7);
    check_reduce_scatter(group, memory, {DType::f32, DType::f32, (int64_t{1} << 20) + 7, false, 1.0f});
    check_reduce_scatter(group, memory, {DType::f16, DType::f32, (int64_t{1} << 20) + 7, false, 0, 100'000});
  }
  for (const size_t n : nbytes) {
    for (const bool in_place : {false, true}) check_all_gather(group, memory, n, in_place);
    for (int root = 0; root < group.size(); ++root) check_broadcast(group, memory, n, root);
    for (const Delivery way : {Delivery::received, Delivery::taken}) check_exchange(group, memory, n, way);
    check_exchange(group, memory, n, Delivery::taken, 300);
  }
  for (const DType in : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t n : numels) {
      check_all_reduce(group, memory, in, n);
      check_reduce_scatter(group, memory, {in, in, n, true});
      check_reduce_scatter(group, memory, {in, in, n, false, 0.5f, 100});
      if (in != DType::f32) check_reduce_scatter(group, memory, {in, DType::f32, n, false, 1.0f, 4096, 2});
    }
  }
  group.barrier({"end", ""}).wait();
}

}  // namespace shoal::testing
