// The address of this host that faces another one.
#pragma once

#include <string>

namespace shoal {

// The own address from which packets to `host` would leave; "" when the host cannot be resolved or reached.
std::string local_address_towards(const std::string& host);

}  // namespace shoal
