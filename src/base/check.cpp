// See check.h.
#include "base/check.h"

namespace shoal {

void throw_broken_promise(const char* file, int line, const std::string& text) {
  throw BrokenPromise(fmt::format("{}:{}: {}. This is a bug in Shoal; please report it.", file, line, text));
}

}  // namespace shoal
