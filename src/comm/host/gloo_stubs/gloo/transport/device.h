// Named by torch's header, never looked into. See gloo_factory.cpp.
#pragma once

namespace gloo::transport {
class Device;
}
