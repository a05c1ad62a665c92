#include "train/step_exchange.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace shoal::train {
namespace {

// What every rank hears when rank r says losses[r].
std::vector<StepNews> heard(const std::vector<std::vector<double>>& losses, const std::vector<int>& signals,
                            const std::optional<Mesh>& mesh = {}) {
  auto groups = make_thread_groups(static_cast<int>(losses.size()));
  std::vector<StepNews> news(losses.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < losses.size(); ++rank) {
    threads.emplace_back([&, rank] {
      StepExchange exchange(*groups[rank], mesh.value_or(Mesh(static_cast<int>(losses.size()))));
      news[rank] = exchange.share(losses[rank], signals[rank]);
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

TEST(StepExchange, RanksThatShareSamplesCountOnce) {
  const Mesh pairs({{.name = "shard", .size = 2}, {.name = "sequence", .size = 2, .own_samples = false}});
  for (const StepNews& news : heard({{1.0}, {1.0}, {4.0}, {4.0}}, {0, 0, 0, 9}, pairs)) {
    EXPECT_EQ(news.mean_loss, 2.5);
    EXPECT_EQ(news.stop_signal, 9) << "every rank is heard";
  }
  EXPECT_EQ(heard({{1.0}, {100.0}, {4.0}, {100.0}}, {0, 0, 0, 0}, pairs)[3].mean_loss, 2.5);
}

TEST(StepExchange, OneRanksSignalReachesAll) {
  for (const int world : {1, 2, 3, 4}) {
    for (int asked = 0; asked < world; ++asked) {
      std::vector<int> signals(static_cast<size_t>(world));
      signals[static_cast<size_t>(asked)] = 15;
      for (const StepNews& news : heard(std::vector<std::vector<double>>(signals.size(), {0.5}), signals)) {
        EXPECT_EQ(news.stop_signal, 15);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::train
