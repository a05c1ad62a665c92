// See settings.h.
#include "config/settings.h"

#include "base/check.h"

namespace shoal::config {

const Settings::Entry* Settings::given(std::string_view path) const {
  const auto found = entries_.find(path);
  return found == entries_.end() ? nullptr : &found->second;
}

Settings::Entry* Settings::given(std::string_view path) {
  const auto found = entries_.find(path);
  return found == entries_.end() ? nullptr : &found->second;
}

std::string Settings::name_of(std::string_view path) const {
  const Entry* entry = given(path);
  return entry == nullptr || entry->written.empty() ? std::string(path) : entry->written;
}

Value Settings::value(std::string_view path) const {
  if (is_mistaken(path)) throw DependsOnMistake();
  const Entry* entry = given(path);
  return entry != nullptr ? entry->value : fallback(path);
}

Value Settings::fallback(std::string_view path) const {
  const Key* key = table_->key(path);
  SHOAL_CHECK(key != nullptr, "{} is not in the table", path);
  const Section* section = table_->section(parent_of(path));
  if (section->type_key.empty()) return key->fallback;
  const Value type = value(section->type_key);
  const Value* of_type = type.is_null() ? nullptr : key->fallback_of(type.as_text());
  return of_type == nullptr ? Value() : *of_type;
}

bool Settings::applies(const Section& section, const Key& key) const {
  if (section.type_key.empty()) return true;
  const Value type = value(section.type_key);
  return !type.is_null() && key.fallback_of(type.as_text()) != nullptr;
}

}  // namespace shoal::config
