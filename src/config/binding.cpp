// See binding.h.
#include "config/binding.h"

#include "base/check.h"

namespace shoal::config {

void unpack(const Value& value, bool& field) { field = value.as_boolean(); }

void unpack(const Value& value, int& field) {
  field = static_cast<int>(value.as_integer());
  SHOAL_CHECK_EQ(static_cast<int64_t>(field), value.as_integer());
}

void unpack(const Value& value, int64_t& field) { field = value.as_integer(); }
void unpack(const Value& value, double& field) { field = value.as_number(); }

void unpack(const Value& value, std::optional<DType>& field) {
  field.reset();
  if (value.is_null()) return;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (value.as_text() == name_of(dtype)) field = dtype;
  }
  SHOAL_CHECK(field.has_value(), "{} names no dtype", value.as_text());
}

Value pack(bool field) { return Value(field); }
Value pack(int field) { return Value(field); }
Value pack(int64_t field) { return Value(field); }
Value pack(double field) { return Value(field); }
Value pack(const std::optional<DType>& field) { return field ? Value(name_of(*field)) : Value(); }

}  // namespace shoal::config
