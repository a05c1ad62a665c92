// Makes c10d's Gloo backend from C++: the one file that sees ProcessGroupGloo.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <vector>

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

// Blocks until this rank is connected with each of the others. Throws what c10d throws. The backends by rank, each a
// world of two in which the lower rank is 0; none for this rank itself. See [Note: a backend for each pair].
std::vector<c10::intrusive_ptr<c10d::Backend>> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                                         const GlooOptions& options);

}  // namespace shoal
