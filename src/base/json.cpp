// See json.h. Values and the writer; the reader is in json_parse.cpp.
#include "base/json.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/check.h"

namespace shoal::json {

Value::Value() = default;
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;
Value::Value(Array items) : data_(std::move(items)) {}
Value::Value(Object members) : data_(std::move(members)) {}

bool Value::as_boolean() const {
  SHOAL_CHECK(is_boolean(), "at line {}", mark.line);
  return std::get<bool>(data_);
}

int64_t Value::as_integer() const {
  SHOAL_CHECK(is_integer(), "at line {}", mark.line);
  return std::get<int64_t>(data_);
}

double Value::as_number() const {
  SHOAL_CHECK(is_number(), "at line {}", mark.line);
  return is_integer() ? static_cast<double>(std::get<int64_t>(data_)) : std::get<double>(data_);
}

const std::string& Value::as_text() const {
  SHOAL_CHECK(is_text(), "at line {}", mark.line);
  return std::get<std::string>(data_);
}

const Array& Value::as_array() const {
  SHOAL_CHECK(is_array(), "at line {}", mark.line);
  return std::get<Array>(data_);
}

Array& Value::as_array() {
  SHOAL_CHECK(is_array(), "at line {}", mark.line);
  return std::get<Array>(data_);
}

const Object& Value::as_object() const {
  SHOAL_CHECK(is_object(), "at line {}", mark.line);
  return std::get<Object>(data_);
}

Object& Value::as_object() {
  SHOAL_CHECK(is_object(), "at line {}", mark.line);
  return std::get<Object>(data_);
}

const Value* Value::find(std::string_view key) const {
  for (const Member& member : as_object()) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

Value* Value::find(std::string_view key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

Value& Value::set(std::string_view key, Value value) {
  const Mark place = value.mark;
  if (Value* present = find(key)) return *present = std::move(value);
  as_object().push_back({std::string(key), std::move(value), place});
  return as_object().back().value;
}

bool Value::erase(std::string_view key) {
  return std::erase_if(as_object(), [&](const Member& member) { return member.key == key; }) > 0;
}

bool Value::operator==(const Value& other) const {
  if (is_number() && other.is_number()) {
    return is_integer() && other.is_integer() ? as_integer() == other.as_integer() : as_number() == other.as_number();
  }
  return data_ == other.data_;
}

namespace {

void write_text(const std::string& text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<int>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

// The line break and indentation before an item or a closing bracket at `depth`.
void write_break(int indent, int depth, std::string& out) {
  if (indent > 0) out += "\n" + std::string(static_cast<size_t>(indent * depth), ' ');
}

void write_value(const Value& value, int indent, int depth, std::string& out);

void write_array(const Array& items, int indent, int depth, std::string& out) {
  // Short lists of plain values stay on one line, as people write them.
  bool plain = true;
  for (const Value& item : items) plain = plain && !item.is_array() && !item.is_object();
  const int inner = plain ? 0 : indent;
  out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += inner > 0 ? "," : ", ";
    write_break(inner, depth + 1, out);
    write_value(items[i], inner, depth + 1, out);
  }
  write_break(inner, depth, out);
  out += ']';
}

void write_object(const Object& members, int indent, int depth, std::string& out) {
  out += '{';
  for (size_t i = 0; i < members.size(); ++i) {
    if (i > 0) out += indent > 0 ? "," : ", ";
    write_break(indent, depth + 1, out);
    write_text(members[i].key, out);
    out += ": ";
    write_value(members[i].value, indent, depth + 1, out);
  }
  if (!members.empty()) write_break(indent, depth, out);
  out += '}';
}

void write_value(const Value& value, int indent, int depth, std::string& out) {
  if (value.is_null()) {
    out += "null";
  } else if (value.is_boolean()) {
    out += value.as_boolean() ? "true" : "false";
  } else if (value.is_integer()) {
    out += std::to_string(value.as_integer());
  } else if (value.is_number()) {
    SHOAL_CHECK(std::isfinite(value.as_number()), "JSON has no word for {}", value.as_number());
    out += fmt::format("{}", value.as_number());  // the shortest digits that read back to the same double
  } else if (value.is_text()) {
    write_text(value.as_text(), out);
  } else if (value.is_array()) {
    write_array(value.as_array(), indent, depth, out);
  } else {
    write_object(value.as_object(), indent, depth, out);
  }
}

}  // namespace

std::string write(const Value& value, int indent) {
  std::string out;
  write_value(value, indent, 0, out);
  return out;
}

}  // namespace shoal::json
