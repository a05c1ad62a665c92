// See watch.h.
#include "comm/failure/watch.h"

#include <utility>

namespace shoal {

void Watch::add(std::string at, std::shared_ptr<Probe> probe, uint64_t sequence) {
  entries_.push_back({std::move(at), std::move(probe), sequence, std::nullopt});
}

std::optional<Watch::Oldest> Watch::look(Time now) {
  // A stream ends its work in order, so the first that is not over is the oldest.
  while (!entries_.empty() && entries_.front().probe->finished()) entries_.pop_front();
  if (entries_.empty()) return std::nullopt;
  Entry& oldest = entries_.front();
  if (!oldest.began && oldest.probe->started()) oldest.began = now;
  Oldest found;
  found.at = oldest.at;
  found.sequence = oldest.sequence;
  if (oldest.began) {
    found.under_way = std::chrono::duration_cast<Timeout>(now - *oldest.began);
    found.late = now - *oldest.began >= timeout_;
  }
  return found;
}

}  // namespace shoal
