// See forms.h.
#include "config/forms.h"

#include <fmt/format.h>

namespace shoal::config {
namespace {

class Forms {
 public:
  Forms(Settings& settings, Problems& problems) : settings_(settings), problems_(problems) {}

  std::vector<std::string> settle() {
    read_stage();
    read_offload("zero_optimization.cpu_offload", "offload_optimizer");
    read_offload("zero_optimization.cpu_offload_param", "offload_param");
    drop_weights_off_the_device();
    drop_divisors();
    return std::move(notices_);
  }

 private:
  // The value that was written and is no mistake, or null.
  Value written(const std::string& path) const {
    const Settings::Entry* entry = settings_.given(path);
    return entry == nullptr || settings_.is_mistaken(path) ? Value() : entry->value;
  }

  void say(const std::string& path, const std::string& what) {
    notices_.push_back(fmt::format("{} {}.", settings_.name_of(path), what));
  }

  void replace(const std::string& path, Value value) {
    Settings::Entry entry = *settings_.given(path);
    entry.value = std::move(value);
    settings_.set(path, std::move(entry));
  }

  void read_stage() {
    const std::string path = "zero_optimization.stage";
    if (written(path).is_null() || settings_.name_of(path) != "zero_optimization") return;
    say(path,
        fmt::format("is a boolean, the deprecated form: it is read as {{\"stage\": {}}}", written(path).as_integer()));
  }

  void read_offload(const std::string& path, const std::string& section) {
    if (written(path) != Value(true)) return;
    const std::string device = "zero_optimization." + section + ".device";
    if (settings_.is_mistaken(device)) return;
    const Value given = written(device);
    if (!given.is_null() && given != Value("cpu")) {
      problems_.add(
          settings_.given(path)->mark, settings_.name_of(path),
          fmt::format("true is the deprecated form of {}.device \"cpu\", which is \"{}\". Remove one of them.", section,
                      given.as_text()));
      return;
    }
    say(path, fmt::format("is deprecated: it is read as \"{}\": {{\"device\": \"cpu\"}}", section));
    const Settings::Entry* entry = settings_.given(path);
    settings_.set(device, {Value("cpu"), entry->mark, false, settings_.name_of(path)});
  }

  void drop_weights_off_the_device() {
    const std::string device = "zero_optimization.offload_param.device", stage = "zero_optimization.stage";
    const Value given = written(device);
    if (given.is_null() || given == Value("none") || settings_.is_mistaken(stage)) return;
    const int64_t number = settings_.value(stage).as_integer();
    if (number == 3) return;
    say(device, fmt::format("has no effect at stage {}: every rank keeps whole weights on its device. Use stage 3 to "
                            "move them",
                            number));
    replace(device, "none");
  }

  void drop_divisors() {
    const std::string sum = "gradient_allreduce_op", before = "prescale_gradients",
                      factor = "gradient_predivide_factor";
    if (settings_.is_mistaken(sum) || settings_.is_mistaken(before)) return;
    const bool sums = settings_.value(sum).as_text() == "sum";
    const bool prescales = settings_.value(before).as_boolean();
    if (sums && prescales) {
      say(before, "has no effect: gradient_allreduce_op \"sum\" divides by nothing");
      replace(before, false);
    }
    const Value divisor = written(factor);
    if ((sums || prescales) && !divisor.is_null() && divisor != Value(1)) {
      say(factor, sums ? "has no effect: gradient_allreduce_op \"sum\" divides by nothing"
                       : "has no effect: prescale_gradients divides by the number of ranks at once");
      replace(factor, 1);
    }
  }

  Settings& settings_;
  Problems& problems_;
  std::vector<std::string> notices_;
};

}  // namespace

std::vector<std::string> settle_forms(Settings& settings, Problems& problems) {
  return Forms(settings, problems).settle();
}

}  // namespace shoal::config
