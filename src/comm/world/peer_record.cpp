// See peer_record.h.
#include "comm/world/peer_record.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/check.h"
#include "comm/host/peer_memory.h"
#include "shoal/error.h"

namespace shoal {

namespace {

const char* name_of(Transport transport) {
  switch (transport) {
    case Transport::automatic: return "auto";
    case Transport::shared_memory: return "shm";
    case Transport::gloo: return "gloo";
  }
  return "?";
}

}  // namespace

// Text := world " " wanted " " boot_id " " pid " " probe_fd " " token " " address.
std::string to_text(const PeerRecord& r) {
  return fmt::format("{} {} {} {} {} {} {}", r.world, static_cast<int>(r.wanted), r.boot_id.empty() ? "-" : r.boot_id,
                     r.pid, r.probe_fd, r.token, r.address);
}

PeerRecord peer_record_from_text(const std::string& text) {
  std::istringstream in(text);
  PeerRecord record;
  int wanted = 0;
  in >> record.world >> wanted >> record.boot_id >> record.pid >> record.probe_fd >> record.token >> record.address;
  SHOAL_CHECK(!in.fail(), "not a peer record: {}", text);
  record.wanted = static_cast<Transport>(wanted);
  return record;
}

void check_one_world(const std::vector<PeerRecord>& records, int rank) {
  const std::string place = fmt::format("comm rank {}", rank);
  const PeerRecord& own = records.at(static_cast<size_t>(rank));
  for (size_t peer = 0; peer < records.size(); ++peer) {
    if (records[peer].world != own.world) {
      throw Error(place, fmt::format("rank {} was started for a world of {} and this rank for one of {}. "
                                     "Start all ranks with the same WORLD_SIZE.",
                                     peer, records[peer].world, own.world));
    }
    if (records[peer].wanted != own.wanted) {
      throw Error(place, fmt::format("rank {} wants transport {} and this rank {}. Give SHOAL_TRANSPORT and the config "
                                     "the same value on all ranks.",
                                     peer, name_of(records[peer].wanted), name_of(own.wanted)));
    }
  }
}

bool same_host(const std::vector<PeerRecord>& records) {
  for (const PeerRecord& record : records) {
    if (record.boot_id == "-" || record.boot_id != records.front().boot_id) return false;
  }
  return true;
}

void check_addresses(const std::vector<PeerRecord>& records, int rank) {
  const auto loopback = [](const PeerRecord& record) {
    return record.address.rfind("127.", 0) == 0 || record.address == "::1";
  };
  for (size_t inner = 0; inner < records.size(); ++inner) {
    for (size_t outer = 0; outer < records.size(); ++outer) {
      if (!loopback(records[inner]) || loopback(records[outer])) continue;
      throw Error(fmt::format("comm rank {}", rank),
                  fmt::format("the host of rank {} takes MASTER_ADDR for {}, where rank {} ({}) cannot reach it. Set "
                              "MASTER_ADDR to an address, or GLOO_SOCKET_IFNAME to an interface, that all can reach.",
                              inner, records[inner].address, outer, records[outer].address));
    }
  }
}

std::string unreachable_memory(const std::vector<PeerRecord>& records) {
  for (size_t peer = 0; peer < records.size(); ++peer) {
    const PeerRecord& record = records[peer];
    const auto mapping = PeerMapping::open(record.pid, record.probe_fd, sizeof(record.token), false);
    if (!mapping) return fmt::format("cannot open memory of rank {} ({})", peer, std::strerror(errno));
    if (std::memcmp(mapping->data(), &record.token, sizeof(record.token)) != 0) {
      return fmt::format("process {} is not rank {} here: the two do not see the same processes", record.pid, peer);
    }
  }
  return "";
}

}  // namespace shoal
