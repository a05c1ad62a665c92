// The bytes a collective must move for one rank, as include/shoal/group.h defines them for Traffic; by link, from where
// the ranks of the group stand.
#pragma once

#include "comm/group/members.h"
#include "shoal/group.h"

namespace shoal {

Traffic traffic_of(const AllGather& args, const Members& ranks);
Traffic traffic_of(const ReduceScatter& args, const Members& ranks);
Traffic traffic_of(const AllReduce& args, const Members& ranks);
Traffic traffic_of(const Broadcast& args, const Members& ranks);
Traffic traffic_of(const Exchange& args, const Members& ranks);

}  // namespace shoal
