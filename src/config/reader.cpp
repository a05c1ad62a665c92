// See reader.h.
#include "config/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "config/value_check.h"

namespace shoal::config {
namespace {

// Whether a section that Shoal does not have leaves everything as it is.
bool is_off(const Section& section, const Value& object) {
  if (section.off_switch.empty()) return object.as_object().empty();
  const Value* given = object.find(section.off_switch);
  return given == nullptr || *given == section.off_value;
}

class Reader {
 public:
  Reader(const Table& table, Problems& problems) : table_(table), problems_(problems), settings_(table) {}

  Settings read(const Value& root) {
    read_section(*table_.section(""), root);
    return std::move(settings_);
  }

 private:
  using Spellings = std::map<std::string, const json::Member*>;  // by canonical path

  void read_section(const Section& section, const Value& object) {
    if (section.is_foreign && !is_off(section, object)) {
      const std::string remedy = section.off_switch.empty()
                                     ? "Remove the section"
                                     : fmt::format("Remove the section or set {}.{} to {}", section.path,
                                                   section.off_switch, show(section.off_value));
      problems_.add(object.mark, section.path, fmt::format("not supported yet. {}.", remedy));
    }
    // The type of an optimizer or scheduler decides which parameters exist, so keys come before inner sections.
    Spellings seen;
    std::vector<std::pair<const Section*, const json::Member*>> inner;
    for (const json::Member& member : object.as_object()) {
      if (const Key* key = table_.find_key(section, member.key)) {
        if (is_first_spelling(key->path, member, seen)) read_key(section, *key, member);
      } else if (const Section* found = table_.find_section(section, member.key)) {
        if (is_first_spelling(found->path, member, seen)) inner.emplace_back(found, &member);
      } else if (!section.is_open) {
        report_unknown(section, member);
      }
    }
    for (const auto& [found, member] : inner) enter_section(*found, member->value);
  }

  void enter_section(const Section& section, const Value& value) {
    if (value.is_object()) {
      read_section(section, value);
    } else if (!(value.is_null() && section.nullable)) {
      const std::string remedy = section.not_an_object.empty() ? "Give an object, { ... }." : section.not_an_object;
      problems_.add(value.mark, section.path, fmt::format("{} is not an object. {}", show(value), remedy));
    }
  }

  // Two spellings of one key are a contradiction even when they agree.
  bool is_first_spelling(const std::string& path, const json::Member& member, Spellings& seen) {
    const auto [first, fresh] = seen.emplace(path, &member);
    if (!fresh) {
      problems_.add(member.mark, path_in(parent_of(path), member.key),
                    fmt::format("another name of \"{}\", which is given too ({}). Remove one of them.",
                                first->second->key, problems_.place_of(first->second->mark)));
    }
    return fresh;
  }

  void report_unknown(const Section& section, const json::Member& member) {
    if (settings_.is_mistaken(section.type_key)) return;  // no telling what an unknown type takes
    const std::string path = path_in(section.path, member.key);
    const std::vector<std::string> homes = table_.homes_of(member.key);
    const std::string near = nearest_word(member.key, table_.words_of(section));
    std::string remedy = "docs/config.md lists the keys that may stand here.";
    if (!homes.empty()) {
      remedy = fmt::format("It belongs to {}.", join(homes, " or "));
    } else if (!near.empty()) {
      remedy = fmt::format("Did you mean \"{}\"?", near);
    }
    problems_.add(member.mark, path, "unknown key. " + remedy);
  }

  void read_key(const Section& section, const Key& key, const json::Member& member) {
    if (section.is_foreign) return;  // the section is on and refused, or off and without effect
    const Value& value = member.value;
    const json::Mark mark = value.mark;
    if (!takes_part(section, key, mark)) return;
    const bool auto_is_a_choice = std::find(key.choices.begin(), key.choices.end(), "auto") != key.choices.end();
    if (value.is_text() && value.as_text() == "auto" && !auto_is_a_choice) {
      read_auto(key, mark);
      return;
    }
    Checked checked = check_value(key, value);
    if (!checked.mistake.empty()) {
      problems_.add(mark, path_in(section.path, member.key), std::move(checked.mistake));
      settings_.mark_mistaken(key.path);
      return;
    }
    settings_.set(key.path, {std::move(checked.value), mark, false});
  }

  // Whether the chosen type of optimizer or scheduler has this parameter.
  bool takes_part(const Section& section, const Key& key, const json::Mark& mark) {
    if (section.type_key.empty() || settings_.is_mistaken(section.type_key)) return section.type_key.empty();
    if (settings_.applies(section, key)) return true;
    std::vector<std::string> owners;
    for (const auto& [type, fallback] : key.fallback_by_type) owners.push_back(type);
    const Value type = settings_.value(section.type_key);
    if (type.is_null()) {
      problems_.add(
          mark, key.path,
          fmt::format("{} is not given, so nothing takes this. Give it, or remove the key.", section.type_key));
    } else {
      problems_.add(mark, key.path,
                    fmt::format("{} does not take this; {} {}. Remove the key.", type.as_text(), join(owners, ", "),
                                owners.size() == 1 ? "does" : "do"));
    }
    return false;
  }

  void read_auto(const Key& key, const json::Mark& mark) {
    if (!key.accepts_auto()) {
      problems_.add(mark, key.path, fmt::format("\"auto\" is not understood here. Give {}.", describe_domain(key)));
      settings_.mark_mistaken(key.path);
      return;
    }
    settings_.set(key.path, {Value(), mark, true});
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
  problems.add(entry != nullptr ? entry->mark : type->mark, key.path, message);
  settings.mark_mistaken(key.path);
}

}  // namespace

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
      if (!mistake.empty()) problems.add(entry->mark, key.path, std::move(mistake));
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
        notices.push_back(fmt::format("{} has no effect: {}.", key.path, key.reason));
      const bool asks = key.caution && entry->value != key.fallback;
      const std::string odd = asks ? key.caution(entry->value, settings) : "";
      if (!odd.empty()) notices.push_back(fmt::format("{}: {}.", key.path, odd));
    }
    if (section.is_foreign && root.find(section.path) != nullptr) {
      notices.push_back(fmt::format("{} has no effect: it is switched off, and Shoal does not have it.", section.path));
    }
  }
  return notices;
}

}  // namespace shoal::config
