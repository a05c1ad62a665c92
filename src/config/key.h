// What the config table is made of. A Key says everything about one key of the JSON: its type, default, unit, range,
// meaning, what becomes of it, and the field of Config it fills. Reading, checking, "auto", the effective JSON and
// docs/config.md all come from it. The section files list the keys; table.h puts them together.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "config/binding.h"
#include "shoal/config.h"

namespace shoal::config {

class Settings;

// nbytes: an integer, or a text with a unit such as "24GiB"; it becomes the integer.
enum class Type : uint8_t { boolean, integer, number, text, pair, texts, nbytes, anything };

// carried_out: it does what it says. no_effect: any valid value is accepted, a notice gives the reason.
// refused: only its default (the off value) is accepted; anything else is "not supported yet".
enum class Status : uint8_t { carried_out, no_effect, refused };

// "" or what is wrong with the value, given all others. Runs when the user wrote the key, after "auto" is resolved.
using Rule = std::function<std::string(const Value&, const Settings&)>;

// The value of "auto", or nothing when nobody knows; then the default holds.
using Known = std::optional<Value>;
using AutoRule = std::function<Known(const ConfigContext&, const Settings&)>;

struct Key {
  std::string name;  // as DeepSpeed's documentation spells it
  Type type = Type::anything;
  Value fallback;                    // the default
  std::string path;                  // with the section's; filled in by the table
  std::vector<std::string> aliases;  // other spellings of the name
  bool nullable = false;
  std::string unit;
  std::string meaning;

  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool least_is_open = false, most_is_open = false;
  std::vector<std::string> choices;  // of a text, or in place of an integer; letter case does not matter
  std::vector<std::pair<std::string, std::string>> synonyms;  // other words for a choice
  std::vector<std::string> refused_choices;                   // known to DeepSpeed, "not supported yet"
  std::string remedy;                                         // what to do about a wrong value; "": made from the range
  std::vector<std::pair<std::string, Value>> fallback_by_type;  // keys of optimizer.params: who takes them

  Status status = Status::carried_out;
  std::string reason;           // why it has no effect, or what to do instead of the refused
  std::vector<Value> also_off;  // a refused key's other off values
  std::string auto_meaning;     // "": "auto" is an error
  AutoRule automatic;
  Rule rule;
  Rule caution;  // like a rule, for another value than the default that is odd but allowed: its text becomes a notice
  bool required = false;  // of the optimizer's or scheduler's type: has no default
  Binding binding;        // empty where the key is only checked

  // The words in which a section file writes its rows.
  Key& means(std::string text) { return meaning = std::move(text), *this; }
  Key& in(std::string name_of_unit) { return unit = std::move(name_of_unit), *this; }
  Key& at_least(double bound) { return least = bound, *this; }
  Key& at_most(double bound) { return most = bound, *this; }
  Key& above(double bound) { return least = bound, least_is_open = true, *this; }
  Key& below(double bound) { return most = bound, most_is_open = true, *this; }
  Key& one_of(std::vector<std::string> words) { return choices = std::move(words), *this; }
  Key& not_yet(std::vector<std::string> words) { return refused_choices = std::move(words), *this; }
  Key& or_else(std::string text) { return remedy = std::move(text), *this; }
  Key& or_null() { return nullable = true, *this; }
  Key& also_called(std::string spelling) { return aliases.push_back(std::move(spelling)), *this; }
  Key& of_types(std::vector<std::pair<std::string, Value>> types) { return fallback_by_type = std::move(types), *this; }
  Key& has_no_effect(std::string why) { return status = Status::no_effect, reason = std::move(why), *this; }
  Key& is_refused(std::string instead = "") { return status = Status::refused, reason = std::move(instead), *this; }
  Key& off_at(Value value) { return also_off.push_back(std::move(value)), *this; }
  Key& fills(Binding target) { return binding = std::move(target), *this; }
  Key& must(Rule check) { return rule = std::move(check), *this; }
  Key& warns(Rule check) { return caution = std::move(check), *this; }
  Key& is_required() { return required = true, nullable = false, *this; }
  Key& on_auto(std::string text, AutoRule value) {
    return auto_meaning = std::move(text), automatic = std::move(value), *this;
  }
  // fp32, bf16 and fp16 with the other names torch users write.
  Key& dtype();

  // The default that holds for a type of optimizer or scheduler; nullptr when that type does not take this key.
  const Value* fallback_of(const std::string& type_name) const;
  bool accepts_auto() const { return !auto_meaning.empty(); }
};

Key boolean(std::string name, bool fallback);
Key integer(std::string name, Value fallback);
Key number(std::string name, Value fallback);
Key text(std::string name, Value fallback);
Key nbytes(std::string name, int64_t fallback);
Key pair_of_numbers(std::string name, Value fallback);
Key list_of_texts(std::string name);
Key anything(std::string name);

// One object of the JSON. Its keys and the sections inside it are what may stand there.
struct Section {
  std::string path{};  // "" is the top level
  std::string meaning{};
  std::vector<Key> keys{};
  std::vector<std::string> aliases{};  // other spellings of the last name
  bool nullable = false;
  std::string
      key_of_boolean{};    // the key that true (1) and false (0) stand for, where DeepSpeed's older form had no object
  std::string type_key{};  // path of the key that decides which keys may stand here
  // A section Shoal does not have: refused unless its switch is off. Without a switch of its own it is off while it is
  // empty, or has keys "enabled" at some depth and none of them is true.
  bool is_foreign = false;
  std::string harmless{};  // it changes no result, so it is taken while it is on too: what the notice says then
  std::string instead{};   // a sentence: what there is in its place
  std::string off_switch{};
  Value off_value = false;
  bool is_on_by_itself = false;  // a section without its switch is on
  bool is_open = false;          // its keys are not listed; any may stand there
};

}  // namespace shoal::config
