// See include/shoal/error.h.
#include "shoal/error.h"

#include <fmt/format.h>

namespace shoal {

Error::Error(std::string_view place, std::string_view message)
    : std::runtime_error(fmt::format("[{}] {}", place, message)), place_(place) {}

}  // namespace shoal
