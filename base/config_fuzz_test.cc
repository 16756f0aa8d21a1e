// Configuration text from anywhere is either refused with a line or gives a configuration that
// keeps the rules of its schema.
#include "base/config.h"
#include "base/fuzz_util.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "proto/config.pb.h"

namespace cistern {
namespace {

constexpr char kStore[] = R"(data_dir = "/var/lib/cistern"
listen_address = '127.0.0.1'
data_port = 7610
io_threads = 3
expected_chunk = "1.5MiB"
self_evict_after = "1m30s"
[[segment]]
size = "64MiB"
kind = "memfd"
[[segment]]
size = 8388608
[log]
level = "warning"
)";

void CheckLoaded(const config::StoreConfig& config) {
  EXPECT_FALSE(config.data_dir().empty());
  EXPECT_GE(config.io_threads(), 1u);
  EXPECT_LE(config.data_port(), 65535u);
  EXPECT_LE(config.io_threads(), 64u);
  EXPECT_GE(config.expected_chunk_bytes(), 4096u);
  for (const auto& segment : config.segment()) {
    EXPECT_GE(segment.size_bytes(), 8u << 20);
    EXPECT_LE(segment.size_bytes(), uint64_t{64} << 30);
    EXPECT_TRUE(segment.kind() == "file" || segment.kind() == "memfd") << segment.kind();
  }
}

}  // namespace
}  // namespace cistern

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  cistern::config::StoreConfig config;
  const auto loaded = cistern::LoadConfig(text, "fuzz.toml", {}, &config);
  if (loaded.ok()) {
    cistern::CheckLoaded(config);
  } else {
    EXPECT_THAT(loaded.status(),
                cistern::StatusIs(absl::StatusCode::kInvalidArgument,
                                  testing::MatchesRegex("fuzz.toml:[0-9]+: (.|\n)+")));
  }
  return 0;
}

namespace cistern {
namespace {

TEST(ConfigFuzzTest, AnyTextIsRefusedWithALineOrKeepsTheRules) {
  FuzzCorpus corpus(
      {kStore, "data_dir = 'x'\n[log]\nlevel = 'debug'\n", "segment = [{size='8MiB'}]"}, 4096);
  corpus.Run(1500, LLVMFuzzerTestOneInput);
}

TEST(ConfigFuzzTest, DeepNestingIsRefused) {
  for (const char* open : {"[", "{a="}) {
    std::string text = "data_dir = ";
    for (int i = 0; i < 100'000; ++i) text += open;
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }
  // Lines are bounded; the deepest that fits, below a header as deep.
  for (const size_t parts : {size_t{2000}, size_t{100'000}}) {
    std::string dotted = "a";
    for (size_t i = 0; i < parts; ++i) dotted += ".a";
    const std::string text = "[" + dotted + "]\n" + dotted + " = 1";
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }
}

}  // namespace
}  // namespace cistern
