// The config table: every section and key that Shoal knows, each once. Built from the section files on first use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/key.h"

namespace shoal::config {

class Table {
 public:
  explicit Table(std::vector<Section> sections);

  const std::vector<Section>& sections() const { return sections_; }

  // By the path of canonical names, and by any spelling inside a section; nullptr when there is none.
  const Section* section(std::string_view path) const;
  const Key* key(std::string_view path) const;
  const Key* find_key(const Section& section, std::string_view spelling) const;
  const Section* find_section(const Section& parent, std::string_view spelling) const;

  // Every spelling that may stand in a section, and the names of the sections in which a word is a key.
  std::vector<std::string> words_of(const Section& section) const;
  std::vector<std::string> homes_of(std::string_view word) const;

 private:
  std::vector<Section> sections_;
};

// "a.b.c" -> "a.b" and "c"; "" and "a" for a name at the top level.
std::string_view parent_of(std::string_view path);
std::string_view last_of(std::string_view path);
std::string path_in(std::string_view parent, std::string_view name);

const Table& table();

}  // namespace shoal::config
