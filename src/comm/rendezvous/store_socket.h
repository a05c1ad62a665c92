// The socket that a rendezvous store is served on: bound to the address that the ranks are told, so that nobody on
// another network of the host reaches it. c10d by itself listens on all of them.
#pragma once

#include <string>

namespace shoal {

struct StoreSocket {
  int fd = -1;           // bound; who serves the store takes it over, and listens. -1: there is none
  std::string why_none;  // of the address: "..."; "" where the port is taken, maybe by a store of this process
};

StoreSocket open_store_socket(const std::string& host, int port);

}  // namespace shoal
