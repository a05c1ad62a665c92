// See step_exchange.h.
#include "train/step_exchange.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace shoal::train {

StepNews StepExchange::share(const std::vector<double>& losses, int64_t leaves, const RankSays& says) {
  const size_t data_ranks = counted_.size();
  SHOAL_CHECK(leaves > 0);
  SHOAL_CHECK_EQ(losses.size(), (static_cast<size_t>(leaves) + data_ranks - 1) / data_ranks);
  std::vector<double> own = losses;
  const RankTimes& times = says.times;
  own.insert(own.end(), {times.comm, times.host, times.disk, times.data, says.save_ready ? 1.0 : 0.0,
                         static_cast<double>(says.stop_reason)});
  const size_t row = own.size();
  const size_t ranks = static_cast<size_t>(channel_->size());
  std::vector<double> all(row * ranks);
  const auto begin = std::chrono::steady_clock::now();
  channel_->all_gather({{"share", "losses"}, own.data(), all.data(), row * sizeof(double), nullptr}).wait();
  StepNews news;
  news.waited_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (size_t leaf = 0; leaf < static_cast<size_t>(leaves); ++leaf) {
    news.mean_loss += all[static_cast<size_t>(counted_[leaf % data_ranks]) * row + leaf / data_ranks];
  }
  news.mean_loss /= static_cast<double>(leaves);
  for (size_t rank = 0; rank < ranks; ++rank) {
    const double* said = all.data() + rank * row + losses.size();
    news.ranks.push_back({said[0], said[1], said[2], said[3]});
    news.save_ready = news.save_ready && said[4] != 0;
  }
  for (size_t rank = 0; rank < ranks && news.stop_reason == 0; ++rank) {
    news.stop_reason = static_cast<int>(all[rank * row + row - 1]);
  }
  return news;
}

void StepExchange::add_up(std::vector<float>& numbers) {
  if (std::find(counted_.begin(), counted_.end(), channel_->rank()) == counted_.end()) {
    std::fill(numbers.begin(), numbers.end(), 0.0f);
  }
  channel_
      ->all_reduce({.subject = {"share", "tokens of experts"},
                    .data = numbers.data(),
                    .numel = static_cast<int64_t>(numbers.size()),
                    .keep = nullptr})
      .wait();
}

int StepExchange::share_stop(int stop_reason) {
  std::vector<int> all(static_cast<size_t>(channel_->size()));
  channel_->all_gather({{"share", "stop"}, &stop_reason, all.data(), sizeof(int), nullptr}).wait();
  const auto found = std::find_if(all.begin(), all.end(), [](int reason) { return reason != 0; });
  return found == all.end() ? 0 : *found;
}

}  // namespace shoal::train
