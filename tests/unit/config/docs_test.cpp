#include "config/docs.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace shoal::config {

TEST(Docs, TheFileInTheRepositoryIsFresh) {
  std::ifstream file(SHOAL_SOURCE_DIR "/docs/config.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == write_docs(table()))
      << "docs/config.md is stale. Write the output of tools/config_docs there.";
}

TEST(Docs, NameEveryKeyOfTheTable) {
  const std::string docs = write_docs(table());
  for (const Section& section : table().sections()) {
    EXPECT_TRUE(section.path.empty() || docs.find("`" + section.path + "`") != std::string::npos) << section.path;
    for (const Key& key : section.keys) EXPECT_NE(docs.find("`" + key.name + "`"), std::string::npos) << key.path;
  }
}

}  // namespace shoal::config
