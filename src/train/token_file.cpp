// See token_file.h.
#include "train/token_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>

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
// Behind the ends of documents, at the end of a file of version 2.
struct Trailer {
  uint64_t documents;
  uint64_t learned;
  uint64_t masked;  // 1: there is a mask
};
static_assert(sizeof(Trailer) == 24);

constexpr uint32_t kPlain = 1, kWithDocuments = 2;  // versions
constexpr uint64_t kLargestVocab = uint64_t{1} << 32;

std::string place_of(const std::string& path) { return "data tokens:" + path; }

struct Shape {
  size_t begin = 0;   // byte of the first token
  size_t width = 2;   // bytes of a token
  int64_t vocab = 0;  // 0: not said
  int64_t numel = 0;
  int64_t documents = 0;
  size_t mask = 0;  // byte of the mask; 0: there is none
  size_t ends = 0;  // byte of the first end
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

size_t whole_words(size_t nbytes) { return (nbytes + 7) / 8 * 8; }

uint64_t word_at(const MappedFile& mapping, size_t at) {
  uint64_t word;
  std::memcpy(&word, mapping.data() + at, sizeof(word));
  return word;
}

Shape shape_with_documents(const std::string& path, const MappedFile& mapping, const Header& header) {
  const auto refuse = [&](const std::string& what) {
    throw Error(place_of(path), what + " Write the file again, with `shoal tokenize`.");
  };
  Shape shape = {sizeof(Header), header.width, static_cast<int64_t>(header.vocab), static_cast<int64_t>(header.count)};
  // No sum below overflows: neither number is more than the bytes that there are.
  if (mapping.nbytes() < sizeof(Header) + sizeof(Trailer) || header.count > mapping.nbytes() / header.width) {
    refuse(fmt::format("its header says {} tokens of {} bytes, and it has {} bytes: it is truncated or damaged.",
                       header.count, header.width, mapping.nbytes()));
  }
  Trailer trailer{};
  std::memcpy(&trailer, mapping.data() + mapping.nbytes() - sizeof(trailer), sizeof(trailer));
  const size_t mask = whole_words(sizeof(Header) + header.count * header.width);
  const size_t ends = mask + (trailer.masked == 1 ? whole_words((header.count + 7) / 8) : 0);
  const bool fits = trailer.masked <= 1 && trailer.documents <= mapping.nbytes() / 8 &&
                    ends + trailer.documents * 8 + sizeof(trailer) == mapping.nbytes() &&
                    trailer.learned <= header.count && (trailer.documents == 0) == (header.count == 0);
  if (!fits) {
    refuse(
        fmt::format("its header says {} tokens of {} bytes, which do not fit its {} bytes and {} documents: it is "
                    "truncated or damaged.",
                    header.count, header.width, mapping.nbytes(), trailer.documents));
  }
  uint64_t before = 0;
  for (uint64_t i = 0; i < trailer.documents; ++i) {
    const uint64_t end = word_at(mapping, ends + i * 8);
    if (end < before || end > header.count || (i + 1 == trailer.documents && end != header.count)) {
      refuse(fmt::format("document {} ends at token {}, after one that ends at {}, of {} tokens: it is damaged.", i,
                         end, before, header.count));
    }
    before = end;
  }
  shape.documents = static_cast<int64_t>(trailer.documents);
  shape.mask = trailer.masked == 1 ? mask : 0;
  shape.ends = ends;
  return shape;
}

Shape shape_by_header(const std::string& path, const MappedFile& mapping) {
  Header header{};
  std::memcpy(&header, mapping.data(), sizeof(header));
  const auto refuse = [&](const std::string& what) {
    throw Error(place_of(path), what + " Write the file again, with `shoal tokenize`.");
  };
  if (header.version != kPlain && header.version != kWithDocuments) {
    refuse(fmt::format("its header has version {}; this program reads {} and {}.", header.version, kPlain,
                       kWithDocuments));
  }
  if (header.width != 2 && header.width != 4) {
    refuse(fmt::format("its header says {} bytes a token; only 2 and 4 exist.", header.width));
  }
  if (header.vocab < 1 || header.vocab > kLargestVocab) {
    refuse(fmt::format("its header says a vocabulary of {}, which is none.", header.vocab));
  }
  if (header.version == kWithDocuments) return shape_with_documents(path, mapping, header);
  const uint64_t held = (mapping.nbytes() - sizeof(Header)) / header.width;
  if (held != header.count || (mapping.nbytes() - sizeof(Header)) % header.width != 0) {
    refuse(fmt::format("its header says {} tokens of {} bytes, but {} bytes follow: it is truncated or damaged.",
                       header.count, header.width, mapping.nbytes() - sizeof(Header)));
  }
  return {sizeof(Header), header.width, static_cast<int64_t>(header.vocab), static_cast<int64_t>(header.count)};
}

// What was to be made into tokens first.
void refuse_rows(const std::string& path, const MappedFile& mapping) {
  if (mapping.nbytes() == 0 || mapping.data()[0] != '{') return;
  throw Error(place_of(path), fmt::format("is no token file; it looks like rows of JSON. Write chat:{} if they are "
                                          "conversations, or make tokens of them with `shoal tokenize`.",
                                          path));
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
    refuse_rows(path, mapping);
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

  int64_t documents() const override { return shape_.documents; }
  int64_t document_begin(int64_t document) const override {
    SHOAL_CHECK(document >= 0 && document <= shape_.documents);
    if (document == 0) return 0;
    return static_cast<int64_t>(word_at(mapping_, shape_.ends + static_cast<size_t>(document - 1) * 8));
  }
  bool has_mask() const override { return shape_.mask != 0; }
  int64_t count_learned(int64_t begin, int64_t numel) const override {
    if (!has_mask()) return numel;
    int64_t learned = 0;
    for (int64_t i = begin; i < begin + numel;) {
      if (i % 8 == 0 && i + 8 <= begin + numel) {
        learned += std::popcount(mask_byte(i));
        i += 8;
      } else {
        learned += is_learned(i++);
      }
    }
    return learned;
  }
  void read_learned(int64_t begin, int64_t numel, uint8_t* learned) const override {
    SHOAL_CHECK(begin >= 0 && numel >= 0 && begin + numel <= shape_.numel);
    for (int64_t i = 0; i < numel; ++i) learned[i] = has_mask() ? is_learned(begin + i) : 1;
  }

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

  uint8_t mask_byte(int64_t token) const {
    return static_cast<uint8_t>(mapping_.data()[shape_.mask + static_cast<size_t>(token / 8)]);
  }
  uint8_t is_learned(int64_t token) const { return mask_byte(token) >> (token % 8) & 1; }

  std::string path_;
  MappedFile mapping_;
  Shape shape_;
};

}  // namespace

bool is_token_file(const std::string& path) {
  std::array<char, kMagic.size()> begin{};
  std::ifstream file(path, std::ios::binary);
  return file.read(begin.data(), begin.size()) && begin == kMagic;
}

std::unique_ptr<TokenSource> open_token_file(const std::string& path) { return std::make_unique<TokenFile>(path); }

}  // namespace shoal::train
