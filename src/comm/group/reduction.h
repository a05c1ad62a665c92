// The ordered sum over ranks, once for all transports: the fold of kernels/reduce.h over what the ranks bring.
// A carrier brings the elements together; here they are added, in the order of ranks whatever came first, so that no
// transport and no cut into pieces shows in the bits. Transports with sums of their own (Carrier::own_sums) make those.
#pragma once

#include "comm/group/carrier.h"
#include "kernels/reduce.h"
#include "shoal/group.h"

namespace shoal {

void reduce_scatter(Carrier& carrier, const Ticket& ticket, const ReduceScatter& args);
void all_reduce(Carrier& carrier, const Ticket& ticket, const AllReduce& args);

// A reduction as the kernel sees it, without its sources.
kernels::OrderedFold fold_of(const ReduceScatter& args);
// An all-reduce of elements that one rank sums by itself, in place.
ReduceScatter reduction_of(const AllReduce& args);

}  // namespace shoal
