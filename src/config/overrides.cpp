// See overrides.h.
#include "config/overrides.h"

#include <fmt/format.h>

#include "config/value_check.h"
#include "shoal/error.h"

namespace shoal::config {
namespace {

void set_mark(Value& value, const json::Mark& mark) {
  value.mark = mark;
  if (value.is_array()) {
    for (Value& item : value.as_array()) set_mark(item, mark);
  } else if (value.is_object()) {
    for (json::Member& member : value.as_object()) {
      member.mark = mark;
      set_mark(member.value, mark);
    }
  }
}

Value parse_override(const std::string& text) {
  try {
    return json::parse(text, "override");
  } catch (const Error&) {
    return Value(text);
  }
}

// Every name under which `name` may stand in the section; just itself where the table does not know it.
std::vector<std::string> spellings_of(const Table& table, const Section* section, const std::string& name) {
  std::vector<std::string> all = {name};
  if (section == nullptr) return all;
  if (const Key* key = table.find_key(*section, name)) {
    all.push_back(key->name);
    all.insert(all.end(), key->aliases.begin(), key->aliases.end());
  } else if (const Section* inner = table.find_section(*section, name)) {
    all.emplace_back(last_of(inner->path));
    all.insert(all.end(), inner->aliases.begin(), inner->aliases.end());
  }
  return all;
}

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> names(1);
  for (const char c : path) {
    if (c == '.') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  return names;
}

// "" or what is wrong with it.
std::string apply_override(const Table& table, const std::string& text, const json::Mark& mark, Value& root) {
  const size_t equals = text.find('=');
  const std::vector<std::string> names = split_path(text.substr(0, equals));
  bool nameless = false;
  for (const std::string& name : names) nameless = nameless || name.empty();
  if (equals == std::string::npos || nameless) {
    return "not of the form path=value. Write it like zero_optimization.stage=3.";
  }
  Value* object = &root;
  const Section* section = table.section("");
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    Value* next = nullptr;
    for (const std::string& spelling : spellings_of(table, section, names[i])) {
      if (next == nullptr) next = object->find(spelling);
    }
    if (next == nullptr || next->is_null()) {
      Value fresh{json::Object{}};
      fresh.mark = mark;
      if (next == nullptr) {
        next = &object->set(names[i], std::move(fresh));
      } else {
        *next = std::move(fresh);
      }
    }
    if (!next->is_object()) {
      return fmt::format(
          "\"{}\" is {} in the config, not an object, so nothing inside it can be set. Correct it there.", names[i],
          show(*next));
    }
    object = next;
    section = section == nullptr ? nullptr : table.find_section(*section, names[i]);
  }
  for (const std::string& spelling : spellings_of(table, section, names.back())) object->erase(spelling);
  Value value = parse_override(text.substr(equals + 1));
  set_mark(value, mark);
  object->set(names.back(), std::move(value));
  return "";
}

}  // namespace

void apply_overrides(const Table& table, const std::vector<std::string>& overrides, Value& root, Problems& problems) {
  for (size_t i = 0; i < overrides.size(); ++i) {
    const json::Mark mark = override_mark(i);
    std::string mistake = apply_override(table, overrides[i], mark, root);
    if (!mistake.empty()) problems.add(mark, "", std::move(mistake));
  }
}

}  // namespace shoal::config
