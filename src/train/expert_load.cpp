// See expert_load.h.
#include "train/expert_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "train/device_copies.h"

namespace shoal::train {

ExpertLoad load_of(const std::vector<float>& tokens, int64_t experts) {
  SHOAL_CHECK(experts > 0 && tokens.size() % static_cast<size_t>(experts) == 0);
  ExpertLoad load;
  for (auto layer = tokens.begin(); layer != tokens.end(); layer += experts) {
    double sum = 0, most = 0;
    for (auto expert = layer; expert != layer + experts; ++expert) {
      sum += *expert;
      most = std::max(most, static_cast<double>(*expert));
      if (*expert == 0) ++load.idle;
    }
    load.busiest.push_back(sum > 0 ? most * static_cast<double>(experts) / sum : 0);
  }
  return load;
}

void StepExperts::add(const models::ForwardReport& report) {
  if (!report.expert_tokens.defined()) return;
  const at::Tensor& balance = report.balance_loss;
  reports_.push_back({balance.defined() ? to_host(balance) : at::Tensor(), to_host(report.expert_tokens)});
}

void StepExperts::share(StepExchange& exchange, int64_t leaves, StepMetrics& metrics) const {
  if (reports_.empty()) return;
  const int64_t experts = reports_[0].expert_tokens.size(1);
  std::vector<float> tokens(static_cast<size_t>(reports_[0].expert_tokens.numel()));
  std::vector<double> balance;
  for (const models::ForwardReport& report : reports_) {
    const int64_t* counts = report.expert_tokens.const_data_ptr<int64_t>();
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] += static_cast<float>(counts[i]);
    if (report.balance_loss.defined()) balance.push_back(report.balance_loss.item<double>());
  }
  exchange.add_up(tokens);
  ExpertLoad load = load_of(tokens, experts);
  metrics.busiest_experts = std::move(load.busiest);
  metrics.idle_experts = load.idle;
  if (!balance.empty()) metrics.balance_loss = exchange.share(balance, leaves).mean_loss;
}

std::string experts_line(const models::ExpertsInfo& experts) {
  if (experts.count == 0) return "";
  const std::string balance =
      experts.balance > 0
          ? fmt::format("the loss that balances them counts {}", experts.balance)
          : "no loss balances them: output_router_logits of config.json is not true (--router-aux-loss 0.001 adds one)";
  return fmt::format("experts: {} of {} for each token, in {} layer{}; {}", experts.per_token, experts.count,
                     experts.layers.size(), experts.layers.size() == 1 ? "" : "s", balance);
}

}  // namespace shoal::train
