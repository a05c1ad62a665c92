#include "train/expert_load.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include <thread>

namespace shoal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ExpertLoad, IsThatOfTheBusiestExpertOverTheMean) {
  const ExpertLoad load = load_of({4, 4, 4, 4, 8, 8, 0, 0, 16, 0, 0, 0}, 4);
  EXPECT_THAT(load.busiest, ElementsAre(1, 2, 4));
  EXPECT_EQ(load.idle, 5);
}

models::ForwardReport report_of(std::vector<int64_t> tokens, float balance) {
  return {at::tensor(balance), at::tensor(at::ArrayRef<int64_t>(tokens)).view({2, 2})};
}

// Four micro-batches: of one rank, and two each of two.
TEST(StepExperts, AreThoseOfTheGlobalBatchAtEveryNumberOfRanks) {
  const std::vector<models::ForwardReport> reports = {report_of({3, 1, 4, 0}, 1.1F), report_of({3, 1, 4, 0}, 1.7F),
                                                      report_of({0, 4, 4, 0}, 1.3F), report_of({1, 3, 4, 0}, 1.9F)};
  const auto metrics_at = [&](int ranks) {
    auto groups = make_thread_groups(ranks);
    std::vector<StepMetrics> metrics(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        StepExchange exchange(*groups[static_cast<size_t>(rank)], Mesh(ranks));
        StepExperts experts;
        for (size_t leaf = static_cast<size_t>(rank); leaf < 4; leaf += static_cast<size_t>(ranks)) {
          experts.add(reports[leaf]);
        }
        experts.share(exchange, 4, metrics[static_cast<size_t>(rank)]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return metrics;
  };
  const StepMetrics one = metrics_at(1)[0];
  EXPECT_THAT(one.busiest_experts, ElementsAre(9.0 / 8, 2));
  EXPECT_EQ(one.idle_experts, 1);
  EXPECT_NEAR(one.balance_loss.value(), 1.5, 1e-6);
  for (const StepMetrics& metrics : metrics_at(2)) {
    EXPECT_EQ(metrics.busiest_experts, one.busiest_experts);
    EXPECT_EQ(metrics.idle_experts, one.idle_experts);
    EXPECT_EQ(metrics.balance_loss, one.balance_loss);
  }
}

TEST(StepExperts, TellNothingOfADenseModel) {
  const auto group = make_single_group();
  StepExchange exchange(*group, Mesh(1));
  StepExperts experts;
  experts.add({});
  StepMetrics metrics;
  experts.share(exchange, 1, metrics);
  EXPECT_TRUE(metrics.busiest_experts.empty());
  EXPECT_FALSE(metrics.balance_loss);
}

TEST(ExpertsLine, SaysWhetherALossBalancesThem) {
  models::ExpertsInfo info = {.count = 128, .per_token = 8, .layers = {0, 1}, .balance = 0.001};
  EXPECT_EQ(experts_line(info),
            "experts: 8 of 128 for each token, in 2 layers; the loss that balances them counts 0.001");
  info.balance = 0;
  EXPECT_THAT(experts_line(info), HasSubstr("--router-aux-loss"));
  EXPECT_EQ(experts_line({}), "");
}

}  // namespace
}  // namespace shoal::train
