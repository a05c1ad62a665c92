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
  std::string address;         // where it is reached over the network
  std::string interface;       // the one that has the address; empty where none has
  std::string host;            // as it calls itself
  std::string door;            // see door.h
  std::string run;             // see read_run()
  std::string said_host = {};  // what SHOAL_HOSTS calls it; "": nothing
};

std::string to_text(const PeerRecord& record);
PeerRecord peer_record_from_text(const std::string& text);

// How `peer` is of another world or run than this rank, or wants another transport; empty when it does not.
std::string difference(const PeerRecord& peer, int peer_rank, const PeerRecord& own, int own_rank);
// Throws shoal::Error when that is so of any of the records.
void check_one_world(const std::vector<PeerRecord>& records, int rank);

// The host that SHOAL_HOSTS gives a rank: "0,0,1,1" has one for each of four ranks. "": it is not set.
std::string host_said(const char* hosts, int world, int rank);
// The number of each rank's host as it counts for groups of ranks and for bytes between hosts, where SHOAL_HOSTS comes
// first, in the order in which they appear; empty: all ranks are on one.
std::vector<int> counted_hosts(const std::vector<PeerRecord>& records);

// Whether every record is of one host, as far as records can say.
bool same_host(const std::vector<PeerRecord>& records);

// The host of each rank, numbered in the order of the first rank on each.
std::vector<int> hosts_of(const std::vector<PeerRecord>& records);
// "4 ranks on 2 hosts, over gloo, meeting at 10.0.0.1:29500: ranks 0, 1 on a at 10.0.0.1 (eth0); ranks 2, 3 on b at
// ...".
std::string say_hosts(const std::vector<PeerRecord>& records, const std::string& transport, const std::string& store);

// Throws shoal::Error when some ranks can be reached at a loopback address only and others not.
void check_addresses(const std::vector<PeerRecord>& records, int rank);

// "" when this process can open every peer's probe and finds its token there; otherwise why not.
std::string unreachable_memory(const std::vector<PeerRecord>& records);

}  // namespace shoal
