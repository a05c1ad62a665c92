#include "train/step_exchange.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace shoal::train {
namespace {

// What every rank hears when rank r says losses[r].
std::vector<StepNews> heard(const std::vector<std::vector<double>>& losses, const std::vector<int>& signals,
                            const std::optional<Mesh>& given = {}, std::optional<int64_t> leaves = {}) {
  const Mesh mesh = given.value_or(Mesh(static_cast<int>(losses.size())));
  auto groups = make_thread_groups(static_cast<int>(losses.size()));
  std::vector<StepNews> news(losses.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < losses.size(); ++rank) {
    threads.emplace_back([&, rank] {
      StepExchange exchange(*groups[rank], mesh);
      const int64_t all = static_cast<int64_t>(losses[rank].size()) * mesh.data_ranks();
      news[rank] = exchange.share(losses[rank], leaves.value_or(all), {.stop_reason = signals[rank]});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return news;
}

TEST(StepExchange, TheMeanIsSummedInTheOrderOfTheGlobalBatch) {
  // Each addition rounds, so another order would give other bits.
  const std::vector<std::vector<double>> losses = {{1e16, 1.0}, {1.0, -1e16}};
  const double expected = (((1e16 + 1.0) + 1.0) - 1e16) / 4;
  for (const StepNews& news : heard(losses, {0, 0})) EXPECT_EQ(news.mean_loss, expected);
  EXPECT_EQ(heard({{1e16, 1.0, 1.0, -1e16}}, {0})[0].mean_loss, expected) << "one rank, the same global batch";
}

// A number of leaves that the ranks do not divide, as an evaluation has: the last round is short, and what its spare
// ranks ran does not count.
TEST(StepExchange, TheFoldOverLeavesIsTheSameAtEveryNumberOfRanks) {
  std::vector<double> leaves;
  for (int leaf = 0; leaf < 24; ++leaf) leaves.push_back(1.0 / (3 + leaf) * (leaf % 2 == 0 ? 1e9 : 1e-3));
  for (const int64_t count : {int64_t{24}, int64_t{17}, int64_t{1}}) {
    double sum = 0;
    for (int64_t leaf = 0; leaf < count; ++leaf) sum += leaves[static_cast<size_t>(leaf)];
    for (const int64_t ranks : {1, 2, 3, 4, 6, 8}) {
      std::vector<std::vector<double>> losses(static_cast<size_t>(ranks));
      for (int64_t rank = 0; rank < ranks; ++rank) {
        for (int64_t round = 0; round < (count + ranks - 1) / ranks; ++round) {
          const int64_t leaf = round * ranks + rank;
          losses[static_cast<size_t>(rank)].push_back(leaf < count ? leaves[static_cast<size_t>(leaf)] : 1e30);
        }
      }
      for (const StepNews& news : heard(losses, std::vector<int>(losses.size()), {}, count)) {
        EXPECT_EQ(news.mean_loss, sum / static_cast<double>(count)) << ranks << " ranks, " << count << " leaves";
      }
    }
  }
}

TEST(StepExchange, NumbersAreAddedUpOverRanksWhoseLossesCount) {
  const auto sums = [](const Mesh& mesh) {
    auto groups = make_thread_groups(4);
    std::vector<std::vector<float>> numbers = {{1, 2}, {10, 20}, {100, 200}, {1000, 2000}};
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 4; ++rank) {
      threads.emplace_back([&, rank] { StepExchange(*groups[rank], mesh).add_up(numbers[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::vector<float>& of : numbers) EXPECT_EQ(of, numbers[0]);
    return numbers[0];
  };
  EXPECT_EQ(sums(Mesh(4)), (std::vector<float>{1111, 2222}));
  const Mesh pairs({{.name = "shard", .size = 2}, {.name = "sequence", .size = 2, .own_samples = false}});
  EXPECT_EQ(sums(pairs), (std::vector<float>{101, 202}));
}

TEST(StepExchange, RanksThatShareSamplesCountOnce) {
  const Mesh pairs({{.name = "shard", .size = 2}, {.name = "sequence", .size = 2, .own_samples = false}});
  for (const StepNews& news : heard({{1.0}, {1.0}, {4.0}, {4.0}}, {0, 0, 0, 9}, pairs)) {
    EXPECT_EQ(news.mean_loss, 2.5);
    EXPECT_EQ(news.stop_reason, 9) << "every rank is heard";
  }
  EXPECT_EQ(heard({{1.0}, {100.0}, {4.0}, {100.0}}, {0, 0, 0, 0}, pairs)[3].mean_loss, 2.5);
}

TEST(StepExchange, OneRanksSignalReachesAll) {
  for (const int world : {1, 2, 3, 4}) {
    for (int asked = 0; asked < world; ++asked) {
      std::vector<int> signals(static_cast<size_t>(world));
      signals[static_cast<size_t>(asked)] = 15;
      for (const StepNews& news : heard(std::vector<std::vector<double>>(signals.size(), {0.5}), signals)) {
        EXPECT_EQ(news.stop_reason, 15);
      }
    }
  }
}

TEST(StepExchange, EveryRankHearsTheTimesOfAll) {
  auto groups = make_thread_groups(3);
  std::vector<StepNews> news(3);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      StepExchange exchange(*groups[rank], Mesh(3));
      const auto r = static_cast<double>(rank);
      news[rank] = exchange.share({1.5, 2.5}, 6, {.times = {1 + r, 10 + r, 20 + r, 30 + r}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const StepNews& heard : news) {
    EXPECT_EQ(heard.mean_loss, 2);
    EXPECT_EQ(heard.stop_reason, 0);
    ASSERT_EQ(heard.ranks.size(), 3u);
    for (size_t rank = 0; rank < 3; ++rank) {
      const auto r = static_cast<double>(rank);
      EXPECT_EQ(heard.ranks[rank].comm, 1 + r);
      EXPECT_EQ(heard.ranks[rank].host, 10 + r);
      EXPECT_EQ(heard.ranks[rank].disk, 20 + r);
      EXPECT_EQ(heard.ranks[rank].data, 30 + r);
    }
  }
}

TEST(StepExchange, ASaveIsReadyWhenEveryRankSaysSo) {
  for (const bool last_is : {true, false}) {
    auto groups = make_thread_groups(3);
    std::vector<StepNews> news(3);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        StepExchange exchange(*groups[rank], Mesh(3));
        news[rank] = exchange.share({1.0}, 3, {.save_ready = rank < 2 || last_is});
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const StepNews& heard : news) {
      EXPECT_EQ(heard.save_ready, last_is);
      EXPECT_EQ(heard.mean_loss, 1);
      EXPECT_EQ(heard.stop_reason, 0);
    }
  }
}

TEST(StepExchange, OneReasonToStopIsHeardByAll) {
  const std::vector<std::vector<int>> cases = {{0, 0, 0}, {0, 15, 0}, {0, -1, 2}};
  const std::vector<int> expected = {0, 15, -1};
  for (size_t i = 0; i < cases.size(); ++i) {
    auto groups = make_thread_groups(3);
    std::vector<int> heard(3);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        StepExchange exchange(*groups[rank], Mesh(3));
        heard[rank] = exchange.share_stop(cases[i][rank]);
        EXPECT_EQ(exchange.share({1.0}, 3, {.stop_reason = cases[i][rank]}).stop_reason, expected[i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(heard, std::vector<int>(3, expected[i])) << i;
  }
}

}  // namespace
}  // namespace shoal::train
