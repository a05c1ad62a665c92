// Makes c10d's Gloo backend from C++: the one file that sees ProcessGroupGloo.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

#include "shoal/group.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace shoal {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  Timeout timeout = kDefaultTimeout;
  std::string address;    // of this host, where peers connect to
  std::string interface;  // if given, its address is used instead
};

// Blocks until all ranks are connected with each other. Throws what c10d throws.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const GlooOptions& options);

}  // namespace shoal
