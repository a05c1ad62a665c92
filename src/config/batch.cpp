// See batch.h.
#include "config/batch.h"

#include <fmt/format.h>

#include <optional>

namespace shoal::config {
namespace {

struct Triple {
  std::optional<int64_t> batch, micro, accum;  // absent: not known yet
};

std::optional<int64_t> known(const Settings& settings, const char* path) {
  const Settings::Entry* entry = settings.given(path);
  if (entry == nullptr || entry->value.is_null()) return std::nullopt;
  return entry->value.as_integer();
}

json::Mark mark_of(const Settings& settings) {
  for (const char* path : {kTrainBatch, kMicroBatch, kAccumulation}) {
    if (const Settings::Entry* entry = settings.given(path)) return entry->mark;
  }
  return {};
}

// "" or why the triple cannot be completed. Ranges keep every product within 64 bits.
std::string complete(Triple& triple, int64_t data_ranks) {
  const auto ranks = [&] { return fmt::format("{} {}", data_ranks, data_ranks == 1 ? "rank" : "ranks"); };
  if (triple.micro && !triple.batch) {
    if (!triple.accum) triple.accum = 1;
    triple.batch = *triple.micro * *triple.accum * data_ranks;
    return "";
  }
  const int64_t batch = *triple.batch;
  if (triple.micro && triple.accum) {
    const int64_t product = *triple.micro * *triple.accum * data_ranks;
    if (batch == product) return "";
    return fmt::format(
        "{} is not {} (micro-batch) x {} (accumulation) x {} = {}. Set it to {}, or leave one of the "
        "three out.",
        batch, *triple.micro, *triple.accum, ranks(), product, product);
  }
  const bool by_micro = triple.micro.has_value();
  if (!by_micro && !triple.accum) triple.accum = 1;
  const int64_t factor = by_micro ? *triple.micro : *triple.accum;
  if (batch % (factor * data_ranks) != 0) {
    const int64_t unit = factor * data_ranks;
    const int64_t below = batch / unit * unit;
    return fmt::format("{} cannot be divided by {} ({}) x {}. Give a multiple of {}, such as {}.", batch, factor,
                       by_micro ? "micro-batch" : "accumulation", ranks(), unit, below > 0 ? below : unit);
  }
  (by_micro ? triple.accum : triple.micro) = batch / (factor * data_ranks);
  return "";
}

}  // namespace

void derive_batch(Settings& settings, const ConfigContext& context, Problems& problems) {
  bool some_auto = false;
  for (const char* path : {kTrainBatch, kMicroBatch, kAccumulation}) {
    if (settings.is_mistaken(path)) return;
    const Settings::Entry* entry = settings.given(path);
    if (entry != nullptr && entry->is_auto && path != kAccumulation) some_auto = true;
  }
  Triple triple{known(settings, kTrainBatch), known(settings, kMicroBatch), known(settings, kAccumulation)};
  if (!triple.batch && !triple.micro) {
    if (!context.micro_batch_size && !some_auto) {
      problems.add(mark_of(settings), kTrainBatch,
                   fmt::format("the batch is not given. Give {} or {}.", kTrainBatch, kMicroBatch));
      return;
    }
    triple.micro = context.micro_batch_size.value_or(1);
    if (!triple.accum) triple.accum = context.accumulation_steps;
  }
  const json::Mark mark = mark_of(settings);
  std::string mistake = complete(triple, context.data_ranks.value_or(context.world_size));
  if (!mistake.empty()) {
    problems.add(mark, kTrainBatch, std::move(mistake));
    return;
  }
  settings.set(kTrainBatch, {*triple.batch, mark, false});
  settings.set(kMicroBatch, {*triple.micro, mark, false});
  settings.set(kAccumulation, {*triple.accum, mark, false});
}

}  // namespace shoal::config
