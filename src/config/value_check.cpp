// See value_check.h.
#include "config/value_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/quantity.h"
#include "base/text.h"

namespace shoal::config {

std::string show(const Value& value) {
  constexpr size_t kLongest = 60;
  std::string text = json::write(value);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

static std::string show_bound(double bound) {
  return std::trunc(bound) == bound && std::abs(bound) < 1e15 ? fmt::format("{}", static_cast<int64_t>(bound))
                                                              : fmt::format("{}", bound);
}

static std::string describe_range(const Key& key) {
  std::vector<std::string> parts;
  if (std::isfinite(key.least)) {
    parts.push_back(fmt::format("{} {}", key.least_is_open ? "above" : "of at least", show_bound(key.least)));
  }
  if (std::isfinite(key.most)) {
    const std::string_view closed = parts.empty() ? "of at most" : "at most";
    parts.push_back(fmt::format("{} {}", key.most_is_open ? "below" : closed, show_bound(key.most)));
  }
  return parts.empty() ? std::string() : fmt::format(" {}", join(parts, " and "));
}

static std::string describe_type(const Key& key) {
  switch (key.type) {
    case Type::boolean: return "true or false";
    case Type::integer:
      return fmt::format("an integer{}{}", describe_range(key),
                         key.choices.empty() ? "" : fmt::format(", or \"{}\"", join(key.choices, "\" or \"")));
    case Type::number: return fmt::format("a number{}", describe_range(key));
    case Type::text: return key.choices.empty() ? "a text" : "one of " + join(key.choices, ", ");
    case Type::pair: return fmt::format("two numbers{}", describe_range(key));
    case Type::texts: return "a list of texts";
    case Type::nbytes: return fmt::format("an integer{}, or a text such as \"24GiB\"", describe_range(key));
    case Type::anything: return "anything";
  }
  return "";
}

std::string describe_domain(const Key& key) { return describe_type(key) + (key.nullable ? ", or null" : ""); }

static std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

static bool in_range(const Key& key, double number) {
  const bool low = key.least_is_open ? number > key.least : number >= key.least;
  const bool high = key.most_is_open ? number < key.most : number <= key.most;
  return low && high;
}

static std::string out_of_range(const Key& key, const Value& value) {
  if (!key.remedy.empty()) return fmt::format("{} {}", show(value), key.remedy);
  return fmt::format("{} is out of range. Give {}.", show(value), describe_domain(key));
}

static std::string wrong_type(const Key& key, const Value& value) {
  const std::string wanted = describe_domain(key);
  if (value.is_null()) return fmt::format("null is not accepted here. Give {}, or leave the key out.", wanted);
  if (value.is_number() && key.type == Type::integer) {
    return fmt::format("{} is not a whole number that fits 64 bits. Give {}.", show(value), wanted);
  }
  if (value.is_text() && (key.type == Type::integer || key.type == Type::number || key.type == Type::boolean)) {
    const std::string word = lower(value.as_text());
    const bool looks_right = key.type == Type::boolean
                                 ? word == "true" || word == "false"
                                 : !word.empty() && word.find_first_not_of("0123456789.+-e") == std::string::npos;
    if (looks_right) return fmt::format("{} is a text. Write {} without quotes.", show(value), word);
  }
  return fmt::format("{} has the wrong type. Give {}.", show(value), wanted);
}

static Checked check_choice(const Key& key, const Value& value) {
  const std::string word = lower(value.as_text());
  for (const std::string& choice : key.choices) {
    if (lower(choice) == word) return {choice, ""};
  }
  for (const auto& [other, choice] : key.synonyms) {
    if (other == word) return {choice, ""};
  }
  for (const std::string& choice : key.refused_choices) {
    if (lower(choice) == word) {
      return {value, fmt::format("{} is not supported yet. Give one of {}.", choice, join(key.choices, ", "))};
    }
  }
  const std::string near = nearest_word(value.as_text(), key.choices);
  const std::string hint = near.empty() ? "" : fmt::format("Did you mean \"{}\"? ", near);
  return {value, fmt::format("{} is not known. {}Give {}.", show(value), hint, describe_domain(key))};
}

static Checked check_pair(const Key& key, const Value& value) {
  const json::Array& items = value.as_array();
  const bool numbers = std::all_of(items.begin(), items.end(), [](const Value& item) { return item.is_number(); });
  if (items.size() != 2 || !numbers) return {value, wrong_type(key, value)};
  for (const Value& item : items) {
    if (!in_range(key, item.as_number())) return {value, out_of_range(key, value)};
  }
  return {value, ""};
}

static Checked check_nbytes(const Key& key, const Value& value) {
  return {value, in_range(key, value.as_number()) ? "" : out_of_range(key, value)};
}

Checked check_value(const Key& key, const Value& value) {
  if (value.is_null()) return {value, key.nullable ? "" : wrong_type(key, value)};
  switch (key.type) {
    case Type::boolean:
      if (value.is_boolean()) return {value, ""};
      if (value == Value(0) || value == Value(1)) return {value == Value(1), ""};
      break;
    case Type::integer:
      if (value.is_integer()) {
        return {value, in_range(key, value.as_number()) ? "" : out_of_range(key, value)};
      }
      if (value.is_text() && !key.choices.empty()) return check_choice(key, value);
      break;
    case Type::number:
      if (value.is_number()) return {value, in_range(key, value.as_number()) ? "" : out_of_range(key, value)};
      break;
    case Type::text:
      if (value.is_text()) return key.choices.empty() ? Checked{value, ""} : check_choice(key, value);
      break;
    case Type::pair:
      if (value.is_array()) return check_pair(key, value);
      break;
    case Type::nbytes:
      if (value.is_text()) {
        const ReadNbytes read = read_nbytes(value.as_text());
        return read.mistake.empty() ? check_nbytes(key, read.nbytes) : Checked{value, read.mistake};
      }
      if (value.is_integer()) return check_nbytes(key, value);
      break;
    case Type::texts:
      if (value.is_text()) return {json::Array{value}, ""};
      if (value.is_array() && std::all_of(value.as_array().begin(), value.as_array().end(),
                                          [](const Value& item) { return item.is_text(); })) {
        return {value, ""};
      }
      break;
    case Type::anything: return {value, ""};
  }
  return {value, wrong_type(key, value)};
}

}  // namespace shoal::config
