// See manifest.h: the writer, and the parts of ranks. The reader is in manifest_parse.cpp.
#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/digest.h"
#include "base/json.h"
#include "checkpoint/manifest_text.h"

namespace shoal::checkpoint {

namespace {

using json::Array;
using json::Object;
using json::Value;

Value value_of(const std::vector<std::string>& texts) { return Array(texts.begin(), texts.end()); }

Value value_of(const SavedParam& param) {
  Object members = {{"name", param.name, {}},
                    {"shape", Array(param.shape.begin(), param.shape.end()), {}},
                    {"dtype", name_of(param.dtype), {}},
                    {"trainable", param.trainable, {}}};
  if (!param.aliases.empty()) members.push_back({"aliases", value_of(param.aliases), {}});
  return members;
}

Value value_of(const Piece& piece, const Manifest& manifest) {
  return Object{{"parameter", manifest.params[piece.param].name, {}},
                {"state", name_of(piece.kind), {}},
                {"begin", piece.begin, {}},
                {"numel", piece.numel, {}},
                {"dtype", name_of(piece.dtype), {}},
                {"file", manifest.files[piece.file].name, {}},
                {"offset", piece.offset, {}},
                {"checksum", digest_text(piece.digest), {}}};
}

Value value_of(const SavedRandom& random, const Manifest& manifest) {
  return Object{{"rank", random.rank, {}},
                {"file", manifest.files[random.file].name, {}},
                {"offset", random.offset, {}},
                {"nbytes", random.nbytes, {}},
                {"checksum", digest_text(random.digest), {}}};
}

Value value_of(const EngineProgress& progress) {
  return Object{{"applied_steps", progress.applied_steps, {}},
                {"skipped_steps", progress.skipped_steps, {}},
                {"loss_scale", progress.loss_scale, {}},
                {"loss_scale_hysteresis_left", progress.loss_scale_hysteresis_left, {}},
                {"loss_scale_step", progress.loss_scale_step, {}},
                {"loss_scale_last_overflow", progress.loss_scale_last_overflow, {}}};
}

// One item a line, so that a manifest can be searched and compared with line tools.
template <class Item, class ToValue>
std::string list_of(const std::vector<Item>& items, const ToValue& to_value) {
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i) {
    out += (i == 0 ? "\n    " : ",\n    ") + json::write(to_value(items[i]));
  }
  return out + (items.empty() ? "]" : "\n  ]");
}

}  // namespace

int64_t SavedParam::numel() const {
  int64_t numel = 1;
  for (const int64_t extent : shape) numel *= extent;
  return numel;
}

bool Manifest::has(StateKind kind) const { return std::find(states.begin(), states.end(), kind) != states.end(); }

std::string Manifest::describe(const Piece& piece) const {
  return fmt::format("{} of {}, elements {} to {}", name_of(piece.kind), params[piece.param].name, piece.begin,
                     piece.begin + piece.numel - 1);
}

std::string write_manifest(const Manifest& manifest) {
  Array states;
  for (const StateKind kind : manifest.states) states.push_back(name_of(kind));
  Object extra;
  for (const auto& [key, text] : manifest.extra) extra.push_back({key, text, {}});
  std::string out = "{\n";
  const auto member = [&](std::string_view key, const std::string& text) {
    out += fmt::format("  \"{}\": {},\n", key, text);
  };
  member("format", json::write(kFormatName));
  member("version", json::write(kFormatVersion));
  member("step", json::write(manifest.step));
  member("world", json::write(manifest.world));
  member("weights_only", json::write(manifest.weights_only));
  member("states", json::write(std::move(states)));
  member("progress", json::write(value_of(manifest.progress)));
  member("extra", json::write(std::move(extra)));
  member("config", json::write(manifest.config.empty() ? Value() : json::parse(manifest.config, "config")));
  member("files", list_of(manifest.files, [](const SavedFile& file) {
           return Value(Object{{"name", file.name, {}}, {"nbytes", file.nbytes, {}}});
         }));
  member("random", list_of(manifest.randoms, [&](const SavedRandom& random) { return value_of(random, manifest); }));
  member("parameters", list_of(manifest.params, [](const SavedParam& param) { return value_of(param); }));
  member("pieces", list_of(manifest.pieces, [&](const Piece& piece) { return value_of(piece, manifest); }));
  return seal(std::move(out));
}

std::string seal(std::string text) {
  const uint64_t digest = digest_of(text.data(), text.size());
  return std::move(text) + fmt::format("{}{}\"\n}}\n", kSealKey, digest_text(digest));
}

std::string write_rank_part(const RankPart& part) {
  Array pieces;
  for (const Piece& p : part.pieces) {
    pieces.push_back(Array{p.param, static_cast<int>(p.kind), p.begin, p.numel, static_cast<int>(p.dtype), p.offset,
                           digest_text(p.digest)});
  }
  const SavedRandom& random = part.random;
  return json::write(Object{{"file", part.file.name, {}},
                            {"nbytes", part.file.nbytes, {}},
                            {"random", Array{random.offset, random.nbytes, digest_text(random.digest)}, {}},
                            {"pieces", std::move(pieces), {}}});
}

RankPart parse_rank_part(std::string_view text) {
  const Value value = json::parse(text, "a rank's part of a checkpoint");
  RankPart part;
  part.file = {value.find("file")->as_text(), value.find("nbytes")->as_integer()};
  const Array& random = value.find("random")->as_array();
  part.random.offset = random[0].as_integer();
  part.random.nbytes = random[1].as_integer();
  part.random.digest = digest_from(random[2].as_text()).value();
  for (const Value& item : value.find("pieces")->as_array()) {
    const Array& fields = item.as_array();
    Piece piece;
    piece.param = static_cast<int>(fields[0].as_integer());
    piece.kind = static_cast<StateKind>(fields[1].as_integer());
    piece.begin = fields[2].as_integer();
    piece.numel = fields[3].as_integer();
    piece.dtype = static_cast<DType>(fields[4].as_integer());
    piece.offset = fields[5].as_integer();
    piece.digest = digest_from(fields[6].as_text()).value();
    part.pieces.push_back(piece);
  }
  return part;
}

}  // namespace shoal::checkpoint
