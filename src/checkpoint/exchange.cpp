// See exchange.h.
#include "checkpoint/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "shoal/error.h"

namespace shoal::checkpoint {

std::vector<std::string> gather_texts(Group& world, const Subject& subject, const std::string& mine) {
  const auto ranks = static_cast<size_t>(world.size());
  const uint64_t own_nbytes = mine.size();
  std::vector<uint64_t> nbytes(ranks);
  world.all_gather({subject, &own_nbytes, nbytes.data(), sizeof(own_nbytes), {}}).wait();
  const uint64_t longest = *std::max_element(nbytes.begin(), nbytes.end());
  std::vector<std::string> texts(ranks);
  if (longest == 0) return texts;
  std::string padded = mine;
  padded.resize(longest);
  std::string whole(longest * ranks, '\0');
  world.all_gather({subject, padded.data(), whole.data(), longest, {}}).wait();
  for (size_t rank = 0; rank < ranks; ++rank) texts[rank] = whole.substr(rank * longest, nbytes[rank]);
  return texts;
}

std::string broadcast_text(Group& world, const Subject& subject, const std::string& of_rank_0) {
  uint64_t nbytes = of_rank_0.size();
  world.broadcast({subject, &nbytes, sizeof(nbytes), 0, {}}).wait();
  std::string text = of_rank_0;
  text.resize(nbytes);
  if (nbytes > 0) world.broadcast({subject, text.data(), nbytes, 0, {}}).wait();
  return text;
}

std::string message_of(const std::exception& error) {
  const std::string text = error.what();
  const auto* ours = dynamic_cast<const Error*>(&error);
  return ours != nullptr ? text.substr(std::min(text.size(), ours->place().size() + 3)) : text;
}

std::string failure_of(Group& world, const Subject& subject, const std::function<void()>& part) {
  std::string failure;
  try {
    part();
  } catch (const std::exception& error) {
    failure = message_of(error);
    if (failure.empty()) failure = "failed";
  }
  const std::vector<std::string> failures = gather_texts(world, subject, failure);
  const auto first = std::find_if(failures.begin(), failures.end(), [](const auto& text) { return !text.empty(); });
  if (first == failures.end()) return "";
  std::string message = fmt::format("rank {}: {}", first - failures.begin(), *first);
  for (auto other = first + 1; other != failures.end(); ++other) {
    // The same words from every rank are said once.
    if (!other->empty() && *other != *first) message += fmt::format(" (also rank {})", other - failures.begin());
  }
  return message;
}

void act_together(Group& world, const Subject& subject, const std::string& place, const std::function<void()>& part) {
  const std::string failure = failure_of(world, subject, part);
  if (!failure.empty()) throw Error(place, failure);
}

}  // namespace shoal::checkpoint
