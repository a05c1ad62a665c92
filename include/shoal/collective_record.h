// What a log of collectives has of each: see MetersView::log_collectives.
#pragma once

#include <cstdint>
#include <string>

namespace shoal {

// One collective that this rank took part in.
struct CollectiveRecord {
  std::string kind;     // "all_gather", "reduce_scatter", "all_reduce", "broadcast", "exchange" or "barrier"
  std::string subject;  // "gather of block.3"
  uint64_t nbytes = 0;  // what this rank brought
  // From its turn on the channel to its end, waits for other ranks with it; -1: not known, on a GPU.
  double seconds = 0;
};

}  // namespace shoal
