// See manifest.h: the reader. What it returns can be relied on: indices are in range, pieces lie inside their files
// and parameters and cover each stored state exactly once.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <unordered_map>

#include "base/digest.h"
#include "base/json.h"
#include "checkpoint/manifest.h"
#include "checkpoint/manifest_text.h"
#include "shoal/error.h"

namespace shoal::checkpoint {

namespace {

using json::Value;

// Of a parameter, so that the bytes of its pieces can be counted in 64 bits.
constexpr int64_t kMostNumel = std::numeric_limits<int64_t>::max() / 8;

template <class Enum>
std::optional<Enum> named(std::initializer_list<Enum> all, std::string_view name) {
  for (const Enum one : all) {
    if (name_of(one) == name) return one;
  }
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(const std::string& place) : place_(place) {}

  Manifest read(std::string_view text) {
    check_seal(text);
    const Value root = json::parse(text, place_ + " manifest.json");
    read_head(root);
    read_files(root);
    read_params(root);
    read_randoms(root);
    read_pieces(root);
    check_coverage();
    return std::move(manifest_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw Error(place_, fmt::format("manifest.json {}", what)); }

  void check_seal(std::string_view text) const {
    const size_t at = text.rfind(kSealKey);
    if (at == std::string_view::npos) fail("is not whole: it has no checksum of its own.");
    if (seal(std::string(text.substr(0, at))) != text) {
      fail("is damaged: its text does not have the checksum that is written in it.");
    }
  }

  const Value& need(const Value& object, std::string_view key) const {
    const Value* value = object.is_object() ? object.find(key) : nullptr;
    if (value == nullptr) fail(fmt::format("has no \"{}\" where one must be.", key));
    return *value;
  }
  int64_t integer(const Value& object, std::string_view key, int64_t least = 0,
                  int64_t most = std::numeric_limits<int64_t>::max()) const {
    const Value& value = need(object, key);
    if (!value.is_integer() || value.as_integer() < least || value.as_integer() > most) {
      fail(fmt::format("has a \"{}\" that is not an integer from {} to {}.", key, least, most));
    }
    return value.as_integer();
  }
  double number(const Value& object, std::string_view key) const {
    const Value& value = need(object, key);
    if (!value.is_number()) fail(fmt::format("has a \"{}\" that is not a number.", key));
    return value.as_number();
  }
  bool flag(const Value& object, std::string_view key) const {
    const Value& value = need(object, key);
    if (!value.is_boolean()) fail(fmt::format("has a \"{}\" that is not true or false.", key));
    return value.as_boolean();
  }
  const std::string& text(const Value& object, std::string_view key) const {
    const Value& value = need(object, key);
    if (!value.is_text()) fail(fmt::format("has a \"{}\" that is not a text.", key));
    return value.as_text();
  }
  const json::Array& list(const Value& object, std::string_view key) const {
    const Value& value = need(object, key);
    if (!value.is_array()) fail(fmt::format("has a \"{}\" that is not a list.", key));
    return value.as_array();
  }
  DType dtype(const Value& object) const {
    const auto found = named({DType::f32, DType::bf16, DType::f16}, text(object, "dtype"));
    if (!found) fail(fmt::format("has an unknown dtype \"{}\".", text(object, "dtype")));
    return *found;
  }
  StateKind state(const Value& value) const {
    const std::string name = value.is_text() ? value.as_text() : "";
    const auto found = named({StateKind::weight, StateKind::first_moment, StateKind::second_moment}, name);
    if (!found) fail(fmt::format("has an unknown state \"{}\".", name));
    return *found;
  }
  uint64_t digest(const Value& object) const {
    const auto found = digest_from(text(object, "checksum"));
    if (!found) fail(fmt::format("has a checksum \"{}\" that is not 16 hexadecimal digits.", text(object, "checksum")));
    return *found;
  }
  int index(const std::unordered_map<std::string, int>& names, const std::string& name, std::string_view kind) const {
    const auto found = names.find(name);
    if (found == names.end()) fail(fmt::format("has no {} \"{}\", though a piece is of it.", kind, name));
    return found->second;
  }

  void read_head(const Value& root) {
    if (text(root, "format") != kFormatName) fail("is not of a Shoal checkpoint.");
    if (const int64_t version = integer(root, "version", 1); version > kFormatVersion) {
      fail(fmt::format("has version {}; this program reads up to {}. Use a later version of Shoal.", version,
                       kFormatVersion));
    }
    manifest_.step = integer(root, "step");
    manifest_.world = static_cast<int>(integer(root, "world", 1, std::numeric_limits<int>::max()));
    manifest_.weights_only = flag(root, "weights_only");
    for (const Value& item : list(root, "states")) manifest_.states.push_back(state(item));
    const Value& progress = need(root, "progress");
    manifest_.progress.applied_steps = integer(progress, "applied_steps");
    manifest_.progress.skipped_steps = integer(progress, "skipped_steps");
    manifest_.progress.loss_scale = number(progress, "loss_scale");
    constexpr int64_t kAny = std::numeric_limits<int64_t>::min();
    manifest_.progress.loss_scale_hysteresis_left = integer(progress, "loss_scale_hysteresis_left", kAny);
    manifest_.progress.loss_scale_step = integer(progress, "loss_scale_step", kAny);
    manifest_.progress.loss_scale_last_overflow = integer(progress, "loss_scale_last_overflow", kAny);
    const Value& extra = need(root, "extra");
    if (!extra.is_object()) fail("has an \"extra\" that is not an object.");
    for (const json::Member& member : extra.as_object()) manifest_.extra[member.key] = text(extra, member.key);
    if (const Value& config = need(root, "config"); !config.is_null()) manifest_.config = json::write(config, 2);
  }

  void read_files(const Value& root) {
    for (const Value& item : list(root, "files")) {
      const std::string& name = text(item, "name");
      if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos) {
        fail(fmt::format("has the file \"{}\", which is no plain name.", name));
      }
      if (!files_.emplace(name, static_cast<int>(manifest_.files.size())).second) {
        fail(fmt::format("has the file {} twice.", name));
      }
      manifest_.files.push_back({name, integer(item, "nbytes")});
    }
  }

  void read_params(const Value& root) {
    for (const Value& item : list(root, "parameters")) {
      SavedParam param;
      param.name = text(item, "name");
      int64_t numel = 1;
      for (const Value& extent : list(item, "shape")) {
        if (!extent.is_integer() || extent.as_integer() < 0 ||
            __builtin_mul_overflow(numel, extent.as_integer(), &numel) || numel > kMostNumel) {
          fail(fmt::format("has an impossible shape of {}.", param.name));
        }
        param.shape.push_back(extent.as_integer());
      }
      param.dtype = dtype(item);
      param.trainable = flag(item, "trainable");
      if (item.find("aliases") != nullptr) {
        for (const Value& alias : list(item, "aliases")) {
          if (!alias.is_text()) fail(fmt::format("has an alias of {} that is not a text.", param.name));
          param.aliases.push_back(alias.as_text());
        }
      }
      if (!params_.emplace(param.name, static_cast<int>(manifest_.params.size())).second) {
        fail(fmt::format("has the parameter {} twice.", param.name));
      }
      manifest_.params.push_back(std::move(param));
    }
  }

  void check_inside(int file, int64_t offset, int64_t nbytes, const std::string& what) const {
    const SavedFile& holder = manifest_.files[file];
    if (offset > holder.nbytes || nbytes > holder.nbytes - offset) {
      fail(fmt::format("puts {} beyond the end of {}.", what, holder.name));
    }
  }

  void read_randoms(const Value& root) {
    for (const Value& item : list(root, "random")) {
      SavedRandom random;
      random.rank = static_cast<int>(integer(item, "rank", 0, manifest_.world - 1));
      random.file = index(files_, text(item, "file"), "file");
      random.offset = integer(item, "offset");
      random.nbytes = integer(item, "nbytes");
      random.digest = digest(item);
      check_inside(random.file, random.offset, random.nbytes, fmt::format("the random state of rank {}", random.rank));
      manifest_.randoms.push_back(random);
    }
  }

  void read_pieces(const Value& root) {
    for (const Value& item : list(root, "pieces")) {
      Piece piece;
      piece.param = index(params_, text(item, "parameter"), "parameter");
      const SavedParam& param = manifest_.params[piece.param];
      piece.kind = state(need(item, "state"));
      piece.begin = integer(item, "begin", 0, param.numel());
      piece.numel = integer(item, "numel", 1, param.numel() - piece.begin);
      piece.dtype = dtype(item);
      piece.file = index(files_, text(item, "file"), "file");
      piece.offset = integer(item, "offset");
      piece.digest = digest(item);
      check_inside(piece.file, piece.offset, piece.nbytes(), manifest_.describe(piece));
      manifest_.pieces.push_back(piece);
    }
  }

  // Every stored state of every parameter that has it, from the first to the last element, once.
  void check_coverage() const {
    std::vector<const Piece*> sorted;
    for (const Piece& piece : manifest_.pieces) sorted.push_back(&piece);
    const auto key = [](const Piece* piece) { return std::tuple(piece->kind, piece->param, piece->begin); };
    std::sort(sorted.begin(), sorted.end(), [&](const Piece* a, const Piece* b) { return key(a) < key(b); });
    size_t at = 0;
    for (const StateKind kind : {StateKind::weight, StateKind::first_moment, StateKind::second_moment}) {
      for (size_t p = 0; p < manifest_.params.size(); ++p) {
        const SavedParam& param = manifest_.params[p];
        const bool stored = kind == StateKind::weight || (manifest_.has(kind) && param.trainable);
        const int64_t numel = stored ? param.numel() : 0;
        int64_t reached = 0;
        for (; at < sorted.size() && sorted[at]->kind == kind && sorted[at]->param == static_cast<int>(p); ++at) {
          const Piece& piece = *sorted[at];
          if (!stored) fail(fmt::format("has a piece that must not be: {}.", manifest_.describe(piece)));
          if (piece.begin != reached) fail(uncovered(kind, param, reached, piece.begin));
          reached += piece.numel;
        }
        if (reached != numel) fail(uncovered(kind, param, reached, numel));
      }
    }
  }
  static std::string uncovered(StateKind kind, const SavedParam& param, int64_t reached, int64_t next) {
    return fmt::format("does not cover the {} of {} once: one piece ends before element {}, the next begins at {}.",
                       name_of(kind), param.name, reached, next);
  }

  std::string place_;
  Manifest manifest_;
  std::unordered_map<std::string, int> files_, params_;
};

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& place) { return Reader(place).read(text); }

}  // namespace shoal::checkpoint
