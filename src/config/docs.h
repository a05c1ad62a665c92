// docs/config.md, written from the table. `tools/config_docs` prints it; a test fails when the file is stale.
#pragma once

#include <string>

#include "config/table.h"

namespace shoal::config {

std::string write_docs(const Table& table);

}  // namespace shoal::config
