// Prints docs/config.md from the config table: build/tools/config_docs > docs/config.md
#include "config/docs.h"

#include <cstdio>

int main() {
  const std::string text = shoal::config::write_docs(shoal::config::table());
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
