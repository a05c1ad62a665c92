// See carrier.h.
#include "comm/group/carrier.h"

#include <cstring>

#include "base/check.h"
#include "comm/group/parts.h"

namespace shoal {

void Carrier::sum(const kernels::OrderedFold& fold) { kernels::ordered_fold(fold); }

void Carrier::copy(void* to, const void* from, size_t nbytes) {
  if (nbytes > 0) std::memcpy(to, from, nbytes);
}

std::byte* Carrier::scratch(size_t nbytes) {
  if (scratch_.size() < nbytes) scratch_.resize(nbytes);
  return scratch_.data();
}

std::unique_ptr<Carrier> Carrier::channel(const std::string& name) { return open(name, members(), Lane::own); }

// The ticket says which parts this rank was asked for: once all have met with it, all know the same.
std::unique_ptr<Carrier> Carrier::split(const Ticket& ticket, const std::string& name, const Parts& parts) {
  barrier(ticket);
  const std::string full_name = channel_name().empty() ? name : name + " of " + channel_name();
  return open("", part_of(parts, members(), full_name), Lane::shared);
}

std::shared_ptr<Slab> Carrier::allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) {
  return Slab::create(nbytes, Slab::Backing::anonymous, std::move(ledger), kind);
}

void Carrier::abort(const std::string& reason) {
  if (fate()) fate()->fail({global(), "", cause_aborted(global(), reason)});
}

std::unique_ptr<Carrier> Carrier::open(const std::string&, const Members&, Lane) {
  SHOAL_CHECK(false, "{} opens no channels by itself", transport_name());
}

}  // namespace shoal
