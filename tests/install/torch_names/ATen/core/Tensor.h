// What the installed headers name of torch, and nothing else: they compile with it in a fraction of the time, and a
// standard header that they forgot does not come along. See install_test.py.
#pragma once

namespace at {

class Tensor {};

enum class DeviceType { cpu };
constexpr DeviceType kCPU = DeviceType::cpu;

class Device {
 public:
  Device(DeviceType type) : type_(type) {}
  DeviceType type() const { return type_; }

 private:
  DeviceType type_;
};

}  // namespace at
