// JSON in and out, written for files that people edit: values remember where they stood, objects keep their order,
// comments (//, #, /* */), trailing commas and bare keys are accepted, a key given twice is a mistake.
// Reading is by parse(), writing by write(); what a document means is its reader's affair.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace shoal::json {

// Where a value or a key begins, counted from 1. Line 0: it did not come from a text.
struct Mark {
  int line = 0;
  int column = 0;
};

class Value;
struct Member;
using Array = std::vector<Value>;
using Object = std::vector<Member>;  // in the order of the text

class Value {
 public:
  Value();  // null
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  ~Value();
  Value(bool flag) : data_(flag) {}
  Value(int number) : data_(int64_t{number}) {}
  Value(int64_t number) : data_(number) {}
  Value(double number) : data_(number) {}
  Value(const char* text) : data_(std::string(text)) {}
  Value(std::string text) : data_(std::move(text)) {}
  Value(std::string_view text) : data_(std::string(text)) {}
  Value(Array items);
  Value(Object members);

  bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_boolean() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(data_); }
  bool is_text() const { return std::holds_alternative<std::string>(data_); }
  bool is_array() const { return std::holds_alternative<Array>(data_); }
  bool is_object() const { return std::holds_alternative<Object>(data_); }

  // Each needs its own kind; as_number takes integers too.
  bool as_boolean() const;
  int64_t as_integer() const;
  double as_number() const;
  const std::string& as_text() const;
  const Array& as_array() const;
  Array& as_array();
  const Object& as_object() const;
  Object& as_object();

  // Members of an object. find gives nullptr when the key is not there; set replaces or appends.
  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
  Value& set(std::string_view key, Value value);
  bool erase(std::string_view key);

  // Equal content wherever it stood; 1 and 1.0 are equal.
  bool operator==(const Value& other) const;

  Mark mark;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> data_;
};

struct Member {
  std::string key;
  Value value;
  Mark mark;  // of the key

  bool operator==(const Member& other) const { return key == other.key && value == other.value; }
};

// A key that stands twice in one object. The first one counts.
struct Duplicate {
  std::string path;  // the keys around it and itself: "fp16.enabled"
  Mark first;
  Mark second;
};

// json: what the first lines of this file say. hjson: besides, the forms of Hjson (hjson.github.io), which DeepSpeed
// reads its configs by: no braces around the whole, a new line in place of a comma, texts without quotes up to the end
// of their line, in single quotes, or over several lines in '''. A text without quotes that holds a bracket, a comma or
// a comment is an error here: Hjson takes all of that into the text, which nobody means.
enum class Syntax : uint8_t { json, hjson };

// Numbers without a fraction are integers when they fit exactly (5e8 is one). A syntax error throws shoal::Error with
// place "<origin> line L, column C". So does a duplicate key, unless `duplicates` is given: then they are listed there.
Value parse(std::string_view text, std::string_view origin, std::vector<Duplicate>* duplicates = nullptr,
            Syntax syntax = Syntax::json);

// One line, or indented by so many spaces a level. Numbers read back to the same bits.
std::string write(const Value& value, int indent = 0);

}  // namespace shoal::json
