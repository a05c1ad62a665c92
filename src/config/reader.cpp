// See reader.h.
#include "config/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "config/value_check.h"

namespace shoal::config {
namespace {

bool is_false(const Value& value) { return value == Value(false) || value == Value(0) || value.is_null(); }

// How many keys "enabled" there are at any depth, and how many of them are on.
struct Switches {
  int all = 0, on = 0;
};

void count_switches(const Value& value, Switches& found) {
  if (!value.is_object()) return;
  for (const json::Member& member : value.as_object()) {
    if (member.key == "enabled") {
      ++found.all;
      if (!is_false(member.value)) ++found.on;
    }
    count_switches(member.value, found);
  }
}

// Whether a section that Shoal does not have leaves everything as it is.
bool is_off(const Section& section, const Value& value) {
  if (!value.is_object()) return is_false(value);
  if (section.off_switch.empty()) {
    Switches found;
    count_switches(value, found);
    return value.as_object().empty() || (found.all > 0 && found.on == 0);
  }
  const Value* given = value.find(section.off_switch);
  if (given == nullptr) return !section.is_on_by_itself || value.as_object().empty();
  return section.off_value.is_boolean() ? is_false(*given) : *given == section.off_value || *given == Value(1);
}

std::string refusal_of(const Section& section) {
  const std::string remedy = section.off_switch.empty()
                                 ? "Remove the section"
                                 : fmt::format("Remove the section or set {}.{} to {}", section.path,
                                               section.off_switch, show(section.off_value));
  return fmt::format("not supported yet. {}{}.", section.instead.empty() ? "" : section.instead + " ", remedy);
}

class Reader {
 public:
  Reader(const Table& table, Problems& problems) : table_(table), problems_(problems), settings_(table) {}

  Settings read(const Value& root) {
    read_section(*table_.section(""), "", root);
    return std::move(settings_);
  }

 private:
  using Spellings = std::map<std::string, const json::Member*>;  // by canonical path

  // name: the section as the user spelled it.
  void read_section(const Section& section, const std::string& name, const Value& object) {
    // The type of an optimizer or scheduler decides which parameters exist, so keys come before inner sections.
    Spellings seen;
    std::vector<std::pair<const Section*, const json::Member*>> inner;
    for (const json::Member& member : object.as_object()) {
      if (const Key* key = table_.find_key(section, member.key)) {
        if (is_first_spelling(key->path, name, member, seen)) read_key(section, *key, name, member);
      } else if (const Section* found = table_.find_section(section, member.key)) {
        if (is_first_spelling(found->path, name, member, seen)) inner.emplace_back(found, &member);
      } else if (!section.is_open) {
        report_unknown(section, name, member);
      }
    }
    for (const auto& [found, member] : inner) enter_section(*found, path_in(name, member->key), member->value);
  }

  void enter_section(const Section& section, const std::string& name, const Value& value) {
    if (section.is_foreign && !is_off(section, value) && section.harmless.empty()) {
      problems_.add(value.mark, name, refusal_of(section));
    }
    if (value.is_object()) {
      read_section(section, name, value);
    } else if (value.is_boolean() && !section.key_of_boolean.empty()) {
      settings_.set(section.key_of_boolean, {value.as_boolean() ? 1 : 0, value.mark, false, name});
    } else if (!(value.is_null() && section.nullable) && !section.is_foreign) {
      problems_.add(value.mark, name, fmt::format("{} is not an object. Give an object, {{ ... }}.", show(value)));
    }
  }

  // Two spellings of one key are a contradiction even when they agree.
  bool is_first_spelling(const std::string& path, const std::string& name, const json::Member& member,
                         Spellings& seen) {
    const auto [first, fresh] = seen.emplace(path, &member);
    if (!fresh) {
      problems_.add(member.mark, path_in(name, member.key),
                    fmt::format("another name of \"{}\", which is given too ({}). Remove one of them.",
                                first->second->key, problems_.place_of(first->second->mark)));
    }
    return fresh;
  }

  void report_unknown(const Section& section, const std::string& name, const json::Member& member) {
    if (settings_.is_mistaken(section.type_key)) return;  // no telling what an unknown type takes
    problems_.add(member.mark, path_in(name, member.key),
                  "unknown key. " + explain_unknown(table_, section, member.key));
  }

  void read_key(const Section& section, const Key& key, const std::string& name, const json::Member& member) {
    if (section.is_foreign) return;  // the section is on and refused, or without effect
    const Value& value = member.value;
    const json::Mark mark = value.mark;
    const std::string written = path_in(name, member.key);
    if (!takes_part(section, key, written, mark)) return;
    const bool auto_is_a_choice = std::find(key.choices.begin(), key.choices.end(), "auto") != key.choices.end();
    if (value.is_text() && value.as_text() == "auto" && !auto_is_a_choice) {
      read_auto(key, written, mark);
      return;
    }
    Checked checked = check_value(key, value);
    if (!checked.mistake.empty()) {
      problems_.add(mark, written, std::move(checked.mistake));
      settings_.mark_mistaken(key.path);
      return;
    }
    settings_.set(key.path, {std::move(checked.value), mark, false, written});
  }

  // Whether the chosen type of optimizer or scheduler has this parameter.
  bool takes_part(const Section& section, const Key& key, const std::string& written, const json::Mark& mark) {
    if (section.type_key.empty() || settings_.is_mistaken(section.type_key)) return section.type_key.empty();
    if (settings_.applies(section, key)) return true;
    std::vector<std::string> owners;
    for (const auto& [type, fallback] : key.fallback_by_type) owners.push_back(type);
    const Value type = settings_.value(section.type_key);
    if (type.is_null()) {
      problems_.add(
          mark, written,
          fmt::format("{} is not given, so nothing takes this. Give it, or remove the key.", section.type_key));
    } else {
      problems_.add(mark, written,
                    fmt::format("{} does not take this; {} {}. Remove the key.", type.as_text(), join(owners, ", "),
                                owners.size() == 1 ? "does" : "do"));
    }
    return false;
  }

  void read_auto(const Key& key, const std::string& written, const json::Mark& mark) {
    if (!key.accepts_auto()) {
      problems_.add(mark, written, fmt::format("\"auto\" is not understood here. Give {}.", describe_domain(key)));
      settings_.mark_mistaken(key.path);
      return;
    }
    settings_.set(key.path, {Value(), mark, true, written});
  }

  const Table& table_;
  Problems& problems_;
  Settings settings_;
};

std::string refusal_of(const Key& key, const Value& value, const Value& fallback) {
  const bool off =
      value == fallback || std::find(key.also_off.begin(), key.also_off.end(), value) != key.also_off.end();
  if (key.status != Status::refused || off) return "";
  if (!key.reason.empty()) return fmt::format("{} {}", show(value), key.reason);
  return fmt::format("{} is not supported yet. Remove the key{}.", show(value),
                     fallback.is_null() ? "" : " or set it to " + show(fallback));
}

// A parameter without a default that the chosen type needs.
void check_required(const Section& section, const Key& key, Settings& settings, Problems& problems) {
  if (settings.is_mistaken(section.type_key) || !settings.applies(section, key)) return;
  const Settings::Entry* entry = settings.given(key.path);
  if (entry != nullptr && !entry->value.is_null()) return;
  const Settings::Entry* type = settings.given(section.type_key);
  const std::string message =
      entry != nullptr && entry->is_auto
          ? std::string("\"auto\" cannot be resolved: nobody gave the value. Give it here.")
          : fmt::format("{} needs this key and there is no default. Give it.", type->value.as_text());
  problems.add(entry != nullptr ? entry->mark : type->mark, settings.name_of(key.path), message);
  settings.mark_mistaken(key.path);
}

}  // namespace

std::string explain_unknown(const Table& table, const Section& section, const std::string& word) {
  const std::vector<std::string> homes = table.homes_of(word);
  if (!homes.empty()) return fmt::format("It belongs to {}.", join(homes, " or "));
  const std::string near = nearest_word(word, table.words_of(section));
  if (!near.empty()) return fmt::format("Did you mean \"{}\"?", near);
  return "docs/config.md lists the keys that may stand here.";
}

Settings read_settings(const Table& table, const Value& root, Problems& problems) {
  return Reader(table, problems).read(root);
}

void resolve_autos(const Table& table, const ConfigContext& context, Settings& settings) {
  for (const Section& section : table.sections()) {
    for (const Key& key : section.keys) {
      Settings::Entry* entry = settings.given(key.path);
      if (entry == nullptr || !entry->is_auto) continue;
      try {
        const Known known = key.automatic(context, settings);
        entry->value = known ? *known : settings.fallback(key.path);
      } catch (const DependsOnMistake&) {
        settings.mark_mistaken(key.path);
      }
    }
  }
}

void check_rules(const Table& table, Settings& settings, Problems& problems) {
  for (const Section& section : table.sections()) {
    for (const Key& key : section.keys) {
      if (settings.is_mistaken(key.path)) continue;
      if (key.required) check_required(section, key, settings, problems);
      const Settings::Entry* entry = settings.given(key.path);
      if (entry == nullptr || settings.is_mistaken(key.path)) continue;
      std::string mistake;
      try {
        if (key.rule) mistake = key.rule(entry->value, settings);
      } catch (const DependsOnMistake&) {
      }
      if (mistake.empty()) mistake = refusal_of(key, entry->value, key.fallback);
      if (!mistake.empty()) problems.add(entry->mark, settings.name_of(key.path), std::move(mistake));
    }
  }
}

std::vector<std::string> collect_notices(const Table& table, const Value& root, const Settings& settings) {
  std::vector<std::string> notices;
  for (const Section& section : table.sections()) {
    for (const Key& key : section.keys) {
      const Settings::Entry* entry = settings.given(key.path);
      if (entry == nullptr) continue;
      if (key.status == Status::no_effect)
        notices.push_back(fmt::format("{} has no effect: {}.", settings.name_of(key.path), key.reason));
      const bool asks = key.caution && entry->value != key.fallback;
      const std::string odd = asks ? key.caution(entry->value, settings) : "";
      if (!odd.empty()) notices.push_back(fmt::format("{}: {}.", settings.name_of(key.path), odd));
    }
    const Value* foreign = section.is_foreign ? root.find(section.path) : nullptr;
    if (foreign == nullptr) continue;
    const bool off = section.harmless.empty() || is_off(section, *foreign);
    notices.push_back(fmt::format("{} has no effect: {}.", section.path,
                                  off ? "it is switched off, and Shoal does not have it" : section.harmless));
  }
  return notices;
}

}  // namespace shoal::config
