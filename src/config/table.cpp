// See table.h.
#include "config/table.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "config/sections.h"

namespace shoal::config {

std::string_view parent_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string_view last_of(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

std::string path_in(std::string_view parent, std::string_view name) {
  return parent.empty() ? std::string(name) : std::string(parent) + "." + std::string(name);
}

static bool is_spelling(std::string_view spelling, std::string_view name, const std::vector<std::string>& aliases) {
  return spelling == name || std::find(aliases.begin(), aliases.end(), spelling) != aliases.end();
}

Table::Table(std::vector<Section> sections) : sections_(std::move(sections)) {
  for (Section& section : sections_) {
    for (Key& key : section.keys) {
      key.path = path_in(section.path, key.name);
      SHOAL_CHECK(!key.meaning.empty() || section.is_foreign, "{} has no meaning", key.path);
      SHOAL_CHECK(key.status != Status::no_effect || !key.reason.empty(), "{} gives no reason", key.path);
    }
  }
}

const Section* Table::section(std::string_view path) const {
  for (const Section& section : sections_) {
    if (section.path == path) return &section;
  }
  return nullptr;
}

const Key* Table::key(std::string_view path) const {
  const Section* home = section(parent_of(path));
  if (home == nullptr) return nullptr;
  const Key* found = find_key(*home, last_of(path));
  return found != nullptr && found->path == path ? found : nullptr;
}

const Key* Table::find_key(const Section& section, std::string_view spelling) const {
  for (const Key& key : section.keys) {
    if (is_spelling(spelling, key.name, key.aliases)) return &key;
  }
  return nullptr;
}

const Section* Table::find_section(const Section& parent, std::string_view spelling) const {
  for (const Section& section : sections_) {
    if (section.path.empty() || parent_of(section.path) != parent.path) continue;
    if (is_spelling(spelling, last_of(section.path), section.aliases)) return &section;
  }
  return nullptr;
}

std::vector<std::string> Table::words_of(const Section& section) const {
  std::vector<std::string> words;
  for (const Key& key : section.keys) {
    words.push_back(key.name);
    words.insert(words.end(), key.aliases.begin(), key.aliases.end());
  }
  for (const Section& inner : sections_) {
    if (inner.path.empty() || parent_of(inner.path) != section.path) continue;
    words.emplace_back(last_of(inner.path));
    words.insert(words.end(), inner.aliases.begin(), inner.aliases.end());
  }
  return words;
}

std::vector<std::string> Table::homes_of(std::string_view word) const {
  std::vector<std::string> homes;
  for (const Section& section : sections_) {
    if (section.is_foreign) continue;
    if (find_key(section, word) == nullptr && find_section(section, word) == nullptr) continue;
    homes.push_back(section.path.empty() ? "the top level" : "\"" + section.path + "\"");
  }
  return homes;
}

const Table& table() {
  static const Table kTable = [] {
    std::vector<Section> all;
    for (const auto& make :
         {top_level_sections, fp16_sections, bf16_sections, fp8_sections, data_types_sections, zero_sections,
          offload_sections, aio_sections, activation_checkpointing_sections, optimizer_sections, scheduler_sections,
          checkpoint_sections, monitor_sections, shoal_sections, foreign_sections}) {
      std::vector<Section> some = make();
      std::move(some.begin(), some.end(), std::back_inserter(all));
    }
    return Table(std::move(all));
  }();
  return kTable;
}

}  // namespace shoal::config
