// See token_file.h.
#include "train/token_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/mapped_file.h"
#include "base/regular_file.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

struct Header {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t width;
  uint64_t vocab;
  uint64_t count;
};
static_assert(sizeof(Header) == 32);

constexpr std::array<char, 8> kMagic = {'S', 'H', 'O', 'A', 'L', 'T', 'O', 'K'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kLargestVocab = uint64_t{1} << 32;

std::string place_of(const std::string& path) { return "data tokens:" + path; }

struct Shape {
  size_t begin = 0;   // byte of the first token
  size_t width = 2;   // bytes of a token
  int64_t vocab = 0;  // 0: not said
  int64_t numel = 0;
};

struct Sidecar {
  size_t width = 0;
  int64_t vocab = 0;
};

std::string sidecar_path(const std::string& path) { return path + ".json"; }

bool read_sidecar(const std::string& path, Sidecar& sidecar) {
  const std::string file = sidecar_path(path);
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return false;
  const std::string text = read_regular(file, place_of(path) + ", " + file, "Put the description of the tokens there.");
  const json::Value value = json::parse(text, file);
  const json::Value* dtype = value.is_object() ? value.find("dtype") : nullptr;
  const std::string name = dtype != nullptr && dtype->is_text() ? dtype->as_text() : "";
  if (name != "uint16" && name != "uint32") {
    throw Error(place_of(path), fmt::format("{} does not say \"dtype\": \"uint16\" or \"uint32\". Correct it.", file));
  }
  sidecar.width = name == "uint16" ? 2 : 4;
  if (const json::Value* vocab = value.find("vocab")) {
    if (!vocab->is_integer() || vocab->as_integer() < 1 || static_cast<uint64_t>(vocab->as_integer()) > kLargestVocab) {
      throw Error(place_of(path), fmt::format("\"vocab\" in {} is not a number of tokens. Correct it.", file));
    }
    sidecar.vocab = vocab->as_integer();
  }
  return true;
}

Shape shape_by_header(const std::string& path, const MappedFile& mapping) {
  Header header{};
  std::memcpy(&header, mapping.data(), sizeof(header));
  const auto refuse = [&](const std::string& what) {
    throw Error(place_of(path), what + " Write the file again, with `shoal tokenize`.");
  };
  if (header.version != kVersion) {
    refuse(fmt::format("its header has version {}; this program reads {}.", header.version, kVersion));
  }
  if (header.width != 2 && header.width != 4) {
    refuse(fmt::format("its header says {} bytes a token; only 2 and 4 exist.", header.width));
  }
  if (header.vocab < 1 || header.vocab > kLargestVocab) {
    refuse(fmt::format("its header says a vocabulary of {}, which is none.", header.vocab));
  }
  const uint64_t held = (mapping.nbytes() - sizeof(Header)) / header.width;
  if (held != header.count || (mapping.nbytes() - sizeof(Header)) % header.width != 0) {
    refuse(fmt::format("its header says {} tokens of {} bytes, but {} bytes follow: it is truncated or damaged.",
                       header.count, header.width, mapping.nbytes() - sizeof(Header)));
  }
  return {sizeof(Header), header.width, static_cast<int64_t>(header.vocab), static_cast<int64_t>(header.count)};
}

Shape shape_of(const std::string& path, const MappedFile& mapping) {
  refuse_lfs_pointer({mapping.data(), mapping.nbytes()}, place_of(path));
  Sidecar sidecar;
  const bool has_sidecar = read_sidecar(path, sidecar);
  const bool has_header =
      mapping.nbytes() >= sizeof(Header) && std::memcmp(mapping.data(), kMagic.data(), kMagic.size()) == 0;
  if (has_header) {
    const Shape shape = shape_by_header(path, mapping);
    if (has_sidecar && (sidecar.width != shape.width || (sidecar.vocab != 0 && sidecar.vocab != shape.vocab))) {
      throw Error(place_of(path), fmt::format("{} contradicts the file's header. Remove it.", sidecar_path(path)));
    }
    return shape;
  }
  if (!has_sidecar) {
    throw Error(place_of(path), fmt::format("has no header, and there is no {} to say what it holds. Write it with "
                                            "`shoal tokenize`, or add {{\"dtype\": \"uint16\"}} there.",
                                            sidecar_path(path)));
  }
  if (mapping.nbytes() % sidecar.width != 0) {
    throw Error(place_of(path), fmt::format("its {} bytes are no whole number of tokens of {} bytes. Correct {}.",
                                            mapping.nbytes(), sidecar.width, sidecar_path(path)));
  }
  return {0, sidecar.width, sidecar.vocab, static_cast<int64_t>(mapping.nbytes() / sidecar.width)};
}

class TokenFile final : public TokenSource {
 public:
  explicit TokenFile(const std::string& path)
      : path_(path), mapping_(path, place_of(path)), shape_(shape_of(path, mapping_)) {}

  int64_t numel() const override { return shape_.numel; }
  int64_t vocab() const override { return shape_.vocab; }
  bool is_checked() const override { return false; }
  void read(int64_t begin, int64_t numel, int64_t* tokens) const override {
    SHOAL_CHECK(begin >= 0 && numel >= 0 && begin + numel <= shape_.numel);
    const char* from = mapping_.data() + shape_.begin + static_cast<size_t>(begin) * shape_.width;
    if (shape_.width == 2) {
      widen<uint16_t>(from, numel, tokens);
    } else {
      widen<uint32_t>(from, numel, tokens);
    }
  }
  std::string describe() const override { return "tokens:" + path_; }

 private:
  // By memcpy: a headerless file may be mapped, and a token read, at any address.
  template <typename Token>
  static void widen(const char* from, int64_t numel, int64_t* tokens) {
    for (int64_t i = 0; i < numel; ++i, from += sizeof(Token)) {
      Token token;
      std::memcpy(&token, from, sizeof(token));
      tokens[i] = token;
    }
  }

  std::string path_;
  MappedFile mapping_;
  Shape shape_;
};

}  // namespace

std::unique_ptr<TokenSource> open_token_file(const std::string& path) { return std::make_unique<TokenFile>(path); }

}  // namespace shoal::train
