// The bytes a collective must move for one rank, as include/shoal/group.h defines them for Traffic.
#pragma once

#include "shoal/group.h"

namespace shoal {

Traffic traffic_of(const AllGather& args, int world);
Traffic traffic_of(const ReduceScatter& args, int world);
Traffic traffic_of(const AllReduce& args, int world, int rank);
Traffic traffic_of(const Broadcast& args, int world, int rank);
Traffic traffic_of(const Exchange& args, int world);

}  // namespace shoal
