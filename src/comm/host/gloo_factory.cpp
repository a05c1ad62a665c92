// See gloo_factory.h.
//
// The wheel ships ProcessGroupGloo.hpp without the gloo headers that it includes. gloo's types stand there only behind
// pointers and references, and the class itself (vtable, layout) is the wheel's, so the declarations in gloo_stubs/
// are enough to construct it. This holds for the versions of torch that cmake/TorchWheel.cmake names.
#include "comm/host/gloo_factory.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace shoal {

// [Note: a backend for each pair]
// Who begins a send or a receive holds a lock of Gloo's whole context meanwhile, and writes to the peer. Is the peer
// gone, the write fails, and the thread waits, lock in hand, for a round of the thread that serves the connections.
// That one may be at another peer's announcement of a transfer, and wait for the lock to note it: then both wait for
// ever, beyond any timeout. In a context of two ranks there is no other peer, and what the same peer announces is put
// off, not waited for. One device, and so one thread, serves all pairs of a link.
std::vector<c10::intrusive_ptr<c10d::Backend>> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                                         const GlooOptions& options) {
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  gloo->threads = 0;  // those of c10d's own collectives
  gloo->devices.push_back(options.interface.empty()
                              ? c10d::ProcessGroupGloo::createDeviceForHostname(options.address)
                              : c10d::ProcessGroupGloo::createDeviceForInterface(options.interface));
  std::vector<c10::intrusive_ptr<c10d::Backend>> by_peer(static_cast<size_t>(options.size));
  // In each round the ranks meet in pairs, or stay alone.
  for (int round = 0; round < options.size; ++round) {
    const int peer = (round + options.size - options.rank) % options.size;
    if (peer == options.rank) continue;
    const bool first = options.rank < peer;
    const std::string pair = fmt::format("{}-{}", first ? options.rank : peer, first ? peer : options.rank);
    const auto own = c10::make_intrusive<c10d::PrefixStore>(pair, store);
    by_peer[peer] = c10::make_intrusive<c10d::ProcessGroupGloo>(own, first ? 0 : 1, 2, gloo);
  }
  return by_peer;
}

}  // namespace shoal
