// See collective_log.h.
#include "comm/group/collective_log.h"

#include <utility>

namespace shoal {

namespace {

const char* log_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::all_reduce: return "all_reduce";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::exchange: return "exchange";
    default: return "barrier";  // and a split, which moves no bytes either
  }
}

}  // namespace

void CollectiveLog::add(const Ticket& ticket, double seconds) {
  const std::lock_guard lock(mutex_);
  records_.push_back({log_name(ticket.kind), ticket.subject, ticket.nbytes, seconds});
}

std::vector<CollectiveRecord> CollectiveLog::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(records_, {});
}

}  // namespace shoal
