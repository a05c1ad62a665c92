// Where this host is on its networks: its addresses, and the one that faces another host.
#pragma once

#include <string>
#include <vector>

namespace shoal {

struct Interface {
  std::string name;     // "eth0"
  std::string address;  // "10.0.0.1"
};

// Those that are up, in the order of the system; one with several addresses comes several times.
std::vector<Interface> interfaces();

// The own address from which packets to `host` would leave; "" when the host cannot be resolved or reached.
std::string local_address_towards(const std::string& host);

// The interface that has the address; "" where none has.
std::string interface_of(const std::string& address, const std::vector<Interface>& found);
// Its first address; "" where there is no such interface.
std::string address_of(const std::string& interface, const std::vector<Interface>& found);
// "eth0 (10.0.0.1), lo (127.0.0.1)".
std::string to_text(const std::vector<Interface>& found);

}  // namespace shoal
