// See ticket.h.
#include "comm/group/ticket.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/text.h"
#include "comm/group/parts.h"

namespace shoal {

namespace {

Ticket begin(const Subject& subject, CollectiveKind kind, uint64_t sequence) {
  Ticket ticket;
  ticket.sequence = sequence;
  ticket.kind = kind;
  const std::string text = subject.unit.empty() ? subject.verb : subject.verb + " of " + subject.unit;
  ticket.subject_hash = hash_text(text);
  std::memcpy(ticket.subject, text.data(), std::min(text.size(), sizeof(ticket.subject) - 1));
  return ticket;
}

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather: return "all-gather";
    case CollectiveKind::reduce_scatter: return "reduce-scatter";
    case CollectiveKind::all_reduce: return "all-reduce";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::barrier: return "barrier";
    case CollectiveKind::exchange: return "exchange";
    case CollectiveKind::split: return "split";
  }
  return "?";
}

bool same_scale(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

}  // namespace

Ticket ticket_of(const AllGather& args, uint64_t sequence) {
  Ticket ticket = begin(args.subject, CollectiveKind::all_gather, sequence);
  ticket.nbytes = args.shard_nbytes;
  return ticket;
}

Ticket ticket_of(const ReduceScatter& args, uint64_t sequence, int world) {
  Ticket ticket = begin(args.subject, CollectiveKind::reduce_scatter, sequence);
  ticket.in_dtype = args.whole_dtype;
  ticket.out_dtype = args.shard_dtype;
  ticket.nbytes = static_cast<uint64_t>(args.shard_numel) * static_cast<uint64_t>(world) * nbytes_of(args.whole_dtype);
  ticket.piece_nbytes = static_cast<uint64_t>(args.piece_numel) * nbytes_of(args.whole_dtype);
  ticket.post = args.post;
  return ticket;
}

Ticket ticket_of(const AllReduce& args, uint64_t sequence) {
  Ticket ticket = begin(args.subject, CollectiveKind::all_reduce, sequence);
  ticket.in_dtype = ticket.out_dtype = args.dtype;
  ticket.nbytes = static_cast<uint64_t>(args.numel) * nbytes_of(args.dtype);
  ticket.post = args.post;
  return ticket;
}

Ticket ticket_of(const Broadcast& args, uint64_t sequence, int global_root) {
  Ticket ticket = begin(args.subject, CollectiveKind::broadcast, sequence);
  ticket.nbytes = args.nbytes;
  ticket.root = global_root;
  return ticket;
}

Ticket ticket_of(const Exchange& args, uint64_t sequence, int world) {
  Ticket ticket = begin(args.subject, CollectiveKind::exchange, sequence);
  ticket.nbytes = args.slice_nbytes * static_cast<uint64_t>(world);
  ticket.piece_nbytes = args.piece_nbytes;
  return ticket;
}

Ticket ticket_of(const Subject& barrier, uint64_t sequence) {
  return begin(barrier, CollectiveKind::barrier, sequence);
}

Ticket ticket_of_split(const std::string& name, const Parts& parts, uint64_t sequence) {
  return begin({"split", name + " into " + to_text(parts)}, CollectiveKind::split, sequence);
}

std::string describe(const Ticket& ticket, const std::string& channel) {
  const std::string where = channel.empty() ? "" : channel + " ";
  return fmt::format("{} ({}#{})", ticket.subject, where, ticket.sequence);
}

std::string disagreement(const Ticket& mine, const Ticket& theirs, int peer, const std::string& channel) {
  const bool both_split = theirs.kind == CollectiveKind::split && mine.kind == CollectiveKind::split;
  if (both_split && theirs.subject_hash != mine.subject_hash) {
    return fmt::format(
        "rank {} is at {} instead: the ranks want different groups. Split every rank's group into the same parts.",
        peer, describe(theirs, channel));
  }
  if (theirs.subject_hash != mine.subject_hash || theirs.sequence != mine.sequence) {
    return fmt::format(
        "rank {} is at {} instead: the ranks run different units or models. "
        "Make every rank run the same units in the same order.",
        peer, describe(theirs, channel));
  }
  std::string how;
  if (theirs.kind != mine.kind) {
    how = fmt::format("does a {} here and this rank a {}", name_of(theirs.kind), name_of(mine.kind));
  } else if (theirs.in_dtype != mine.in_dtype || theirs.out_dtype != mine.out_dtype) {
    how = fmt::format("brings {} (result {}) and this rank {} (result {})", name_of(theirs.in_dtype),
                      name_of(theirs.out_dtype), name_of(mine.in_dtype), name_of(mine.out_dtype));
  } else if (theirs.nbytes != mine.nbytes) {
    how = fmt::format("brings {} bytes and this rank {}", theirs.nbytes, mine.nbytes);
  } else if (theirs.root != mine.root) {
    how = fmt::format("takes rank {} as the root and this rank takes rank {}", theirs.root, mine.root);
  } else if (!same_scale(theirs.post, mine.post)) {
    how = fmt::format("scales by {}, this rank by {}", theirs.post, mine.post);
  } else if (theirs.piece_nbytes != mine.piece_nbytes) {
    how = fmt::format("cuts into pieces of {} bytes and this rank of {}", theirs.piece_nbytes, mine.piece_nbytes);
  } else {
    return "";
  }
  return fmt::format(
      "rank {} {}: the ranks have different models or configs. "
      "Start every rank with the same model and config.",
      peer, how);
}

}  // namespace shoal
