// What each rank tells the others about itself when it joins, and what they conclude: is this one world, and can all
// ranks reach each other's memory? Every rank sees the same records, so all conclude the same.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shoal/group.h"

namespace shoal {

struct PeerRecord {
  int world = 0;  // as its environment says
  Transport wanted = Transport::automatic;
  std::string boot_id;  // of its host's kernel
  pid_t pid = 0;
  int probe_fd = -1;  // a small memfd that begins with `token`
  uint64_t token = 0;
  std::string address;  // where it is reached over the network
};

std::string to_text(const PeerRecord& record);
PeerRecord peer_record_from_text(const std::string& text);

// Throws shoal::Error when the records are not of one world, or the ranks want different transports.
void check_one_world(const std::vector<PeerRecord>& records, int rank);

// Whether every record is of one host, as far as records can say.
bool same_host(const std::vector<PeerRecord>& records);

// Throws shoal::Error when some ranks can be reached at a loopback address only and others not.
void check_addresses(const std::vector<PeerRecord>& records, int rank);

// "" when this process can open every peer's probe and finds its token there; otherwise why not.
std::string unreachable_memory(const std::vector<PeerRecord>& records);

}  // namespace shoal
