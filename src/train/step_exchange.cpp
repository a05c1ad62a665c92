// See step_exchange.h.
#include "train/step_exchange.h"

#include <chrono>

#include "base/check.h"

namespace shoal::train {

StepNews StepExchange::share(const std::vector<double>& losses, int stop_signal) {
  SHOAL_CHECK(!losses.empty());
  std::vector<double> own = losses;
  own.push_back(stop_signal);
  const size_t row = own.size();
  const size_t ranks = static_cast<size_t>(channel_->size());
  std::vector<double> all(row * ranks);
  const auto begin = std::chrono::steady_clock::now();
  channel_->all_gather({{"share", "losses"}, own.data(), all.data(), row * sizeof(double), nullptr}).wait();
  StepNews news;
  news.waited_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (size_t micro_step = 0; micro_step + 1 < row; ++micro_step) {
    for (const int rank : counted_) news.mean_loss += all[static_cast<size_t>(rank) * row + micro_step];
  }
  news.mean_loss /= static_cast<double>((row - 1) * counted_.size());
  for (size_t rank = 0; rank < ranks && news.stop_signal == 0; ++rank) {
    news.stop_signal = static_cast<int>(all[rank * row + row - 1]);
  }
  return news;
}

}  // namespace shoal::train
