// What one config says, key by key: the values that were written, with their places, over the table's defaults.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "config/table.h"

namespace shoal::config {

// Thrown by Settings::value for a key whose value was already reported as wrong: whoever asked cannot judge.
struct DependsOnMistake {};

class Settings {
 public:
  struct Entry {
    Value value;
    json::Mark mark;
    bool is_auto = false;      // "auto" was written; value holds what it became
    std::string written = {};  // the key as the user spelled it, with its sections; "": as the table does
  };

  explicit Settings(const Table& table) : table_(&table) {}

  void set(const std::string& path, Entry entry) { entries_[path] = std::move(entry); }
  void mark_mistaken(const std::string& path) { mistaken_.insert(path); }

  // The entry the user wrote, or nullptr.
  const Entry* given(std::string_view path) const;
  Entry* given(std::string_view path);
  // What to call the key in messages: the user's spelling, else the table's.
  std::string name_of(std::string_view path) const;
  bool is_mistaken(std::string_view path) const { return mistaken_.contains(std::string(path)); }

  // The effective value: what was written, else the default (of the chosen optimizer or scheduler type).
  Value value(std::string_view path) const;
  Value fallback(std::string_view path) const;
  // Whether the key applies: false for parameters that the chosen optimizer or scheduler type does not take.
  bool applies(const Section& section, const Key& key) const;

 private:
  const Table* table_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::set<std::string> mistaken_;
};

}  // namespace shoal::config
