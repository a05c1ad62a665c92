// What a rank says about the collective it has arrived at. Every rank compares its peers' tickets with its own before
// it reads a byte of theirs, so ranks that disagree are found, and named, instead of mixing their data.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "shoal/group.h"

namespace shoal {

enum class CollectiveKind : uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, barrier, exchange, split };

// Plain bytes: travels through shared memory and over the wire as it is.
struct Ticket {
  uint64_t sequence = 0;  // counted per channel, from 1
  CollectiveKind kind = CollectiveKind::barrier;
  DType in_dtype = DType::f32;
  DType out_dtype = DType::f32;
  uint8_t unused = 0;
  int32_t root = 0;           // its number in the world
  uint64_t nbytes = 0;        // what this rank brings
  uint64_t piece_nbytes = 0;  // 0: not cut
  float post = 1.0f;
  uint64_t subject_hash = 0;
  char subject[104] = {};  // "gather of block.3", cut if longer
};
static_assert(std::is_trivially_copyable_v<Ticket> && sizeof(Ticket) == 152);

Ticket ticket_of(const AllGather& args, uint64_t sequence);
Ticket ticket_of(const ReduceScatter& args, uint64_t sequence, int world);
Ticket ticket_of(const AllReduce& args, uint64_t sequence);
Ticket ticket_of(const Broadcast& args, uint64_t sequence, int global_root);
Ticket ticket_of(const Exchange& args, uint64_t sequence, int world);
Ticket ticket_of(const Subject& barrier, uint64_t sequence);
// The parts stand in the subject, so that ranks that ask for different ones disagree.
Ticket ticket_of_split(const std::string& name, const Parts& parts, uint64_t sequence);

// "gather of block.3 (weights #42)"; the main channel has no name: "gather of block.3 (#42)".
std::string describe(const Ticket& ticket, const std::string& channel);

// In which way `theirs`, brought by `peer` (its number in the world), is another collective than `mine`; empty when it
// is the same.
std::string disagreement(const Ticket& mine, const Ticket& theirs, int peer, const std::string& channel);

}  // namespace shoal
