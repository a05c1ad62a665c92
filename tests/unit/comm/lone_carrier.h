// A Carrier whose peers are arrays of the test's: what each rank brings stands ready, and goes through in parts.
#pragma once

#include <cstring>
#include <vector>

#include "comm/group/carrier.h"

namespace shoal::testing {

class LoneCarrier final : public Carrier {
 public:
  // Plays `rank`; `brought[r]` is what rank r brings. `part_nbytes`: how much of a strip comes at a time.
  LoneCarrier(std::vector<const void*> brought, int rank, size_t part_nbytes)
      : Carrier({Members::all(static_cast<int>(brought.size()), rank), "", "test", nullptr}),
        brought_(std::move(brought)),
        part_nbytes_(part_nbytes) {}

  void exchange(const Ticket&, const Strips& strips, const Take& take) override {
    ++exchanges;
    const size_t strip = strips.count == 1 ? 0 : static_cast<size_t>(rank());
    const size_t nbytes = strips.nbytes_at(static_cast<int>(strip));
    for (size_t begin = 0; begin < nbytes; begin += part_nbytes_) {
      std::vector<const void*> sources;
      for (const void* data : brought_) {
        sources.push_back(static_cast<const std::byte*>(data) + strip * strips.strip_nbytes + begin);
      }
      take({begin, std::min(part_nbytes_, nbytes - begin), sources.data()});
    }
  }
  void all_gather(const Ticket&, const Gather& args) override { gathered = args; }
  void broadcast(const Ticket&, const Broadcast&) override {}
  void barrier(const Ticket&) override {}

  int exchanges = 0;
  Gather gathered;

 private:
  std::vector<const void*> brought_;
  const size_t part_nbytes_;
};

}  // namespace shoal::testing
