#include "base/config.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "proto/config.pb.h"

namespace cistern {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

using Overrides = std::vector<std::pair<std::string, std::string>>;

absl::StatusOr<LoadedConfig> LoadMaster(std::string_view text, config::MasterConfig* out,
                                        const Overrides& overrides = {}) {
  return LoadConfig(text, "m.toml", overrides, out);
}

// The message of what was refused.
std::string MasterError(std::string_view text, const Overrides& overrides = {}) {
  config::MasterConfig config;
  const auto loaded = LoadMaster(text, &config, overrides);
  EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument) << loaded.status();
  return std::string(loaded.status().message());
}

std::string StoreError(std::string_view text, const Overrides& overrides = {}) {
  config::StoreConfig config;
  const auto loaded = LoadConfig(text, "s.toml", overrides, &config);
  EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument) << loaded.status();
  return std::string(loaded.status().message());
}

const ConfigValue* Find(const LoadedConfig& loaded, std::string_view key) {
  for (const ConfigValue& value : loaded.values) {
    if (value.key == key) return &value;
  }
  return nullptr;
}

TEST(ConfigTest, AbsentKeysHaveTheDefaultsOfTheSchema) {
  config::MasterConfig config;
  ASSERT_OK_AND_ASSIGN(const LoadedConfig loaded, LoadMaster("data_dir = '/d'\n", &config));
  EXPECT_EQ(config.data_dir(), "/d");
  EXPECT_EQ(config.data_port(), 7600u);
  EXPECT_EQ(config.lease_ms(), 10'000u);
  EXPECT_EQ(config.high_watermark(), 0.95);
  EXPECT_EQ(config.log().level(), "info");
  EXPECT_EQ(Find(loaded, "lease")->source, "default");
  EXPECT_EQ(Find(loaded, "lease")->value, "10s");
  EXPECT_EQ(Find(loaded, "data_dir")->source, "m.toml:1");
}

TEST(ConfigTest, EveryDefaultKeepsItsOwnRules) {
  config::MasterConfig master;
  EXPECT_OK(LoadConfig("", "", {{"data_dir", "/d"}}, &master));
  config::StoreConfig store;
  EXPECT_OK(LoadConfig("", "", {{"data_dir", "/d"}, {"segment[0].size", "8MiB"}}, &store));
  config::ClientConfig client;
  EXPECT_OK(LoadConfig("", "", {}, &client));
}

TEST(ConfigTest, SizesAndTimesAreWrittenWithUnits) {
  config::StoreConfig config;
  ASSERT_OK(
      LoadConfig("data_dir = '/d'\n"
                 "max_inflight = '1.5GiB'\n"
                 "expected_chunk = 8192\n"
                 "idle_timeout = '1m30s'\n"
                 "stall_timeout = 250\n",
                 "s.toml", {}, &config));
  EXPECT_EQ(config.max_inflight_bytes(), 1'610'612'736u);  // 1.5 x 1073741824
  EXPECT_EQ(config.expected_chunk_bytes(), 8192u);
  EXPECT_EQ(config.idle_timeout_ms(), 90'000u);
  EXPECT_EQ(config.stall_timeout_ms(), 250u);
}

TEST(ConfigTest, ArraysOfTablesKeepTheirOrder) {
  config::StoreConfig config;
  ASSERT_OK_AND_ASSIGN(const LoadedConfig loaded,
                       LoadConfig("data_dir = '/d'\n"
                                  "[[segment]]\n"
                                  "size = '64MiB'\n"
                                  "[[segment]]\n"
                                  "size = '1GiB'\n"
                                  "kind = 'memfd'\n",
                                  "s.toml", {{"segment[0].name", "first"}}, &config));
  ASSERT_EQ(config.segment_size(), 2);
  EXPECT_EQ(config.segment(0).size_bytes(), 67'108'864u);
  EXPECT_EQ(config.segment(0).kind(), "file");
  EXPECT_EQ(config.segment(0).name(), "first");
  EXPECT_EQ(config.segment(1).size_bytes(), 1'073'741'824u);
  EXPECT_EQ(config.segment(1).kind(), "memfd");
  EXPECT_EQ(Find(loaded, "segment[1].size")->value, "1GiB");
  EXPECT_EQ(Find(loaded, "segment[1].size")->source, "s.toml:5");
  EXPECT_EQ(Find(loaded, "segment[0].name")->source, "flag");
}

TEST(ConfigTest, FlagsWinOverTheFileAndTheLastFlagOverTheFirst) {
  config::MasterConfig config;
  ASSERT_OK_AND_ASSIGN(
      const LoadedConfig loaded,
      LoadMaster("data_dir = '/d'\nlease = '2s'\n[log]\nlevel = 'error'\n", &config,
                 {{"lease", "5s"}, {"log.level", "debug"}, {"lease", "7s"}}));
  EXPECT_EQ(config.lease_ms(), 7000u);
  EXPECT_EQ(config.log().level(), "debug");
  EXPECT_EQ(Find(loaded, "lease")->source, "flag");
}

TEST(ConfigTest, WithoutAFileWhatIsMissingIsSaidToBeGiven) {
  config::MasterConfig config;
  EXPECT_THAT(LoadConfig("", "", {}, &config),
              StatusIs(StatusCode::kInvalidArgument,
                       "missing required key \"data_dir\": name a configuration file with "
                       "--config, or --set data_dir=VALUE"));
  EXPECT_THAT(
      LoadConfig("", "m.toml", {}, &config),
      StatusIs(StatusCode::kInvalidArgument, "m.toml:1: missing required key \"data_dir\""));
}

TEST(ConfigTest, FlagsMayAddTables) {
  config::StoreConfig config;
  ASSERT_OK(LoadConfig("", "", {{"data_dir", "/d"}, {"segment[0].size", "64MiB"}}, &config));
  ASSERT_EQ(config.segment_size(), 1);
  EXPECT_EQ(config.segment(0).size_bytes(), 67'108'864u);
  EXPECT_THAT(StoreError("", {{"data_dir", "/d"}, {"segment[1].size", "64MiB"}}),
              HasSubstr("unknown key \"segment[1].size\""));
}

TEST(ConfigTest, UnknownKeysNameTheirLineAndTheNearestKnownKey) {
  EXPECT_EQ(MasterError("data_dir = '/d'\n\nleese = '5s'\n"),
            "m.toml:3: unknown key \"leese\"; did you mean \"lease\"?");
  EXPECT_EQ(MasterError("data_dir = '/d'\n[log]\nlevle = 'info'\n"),
            "m.toml:3: unknown key \"log.levle\"; did you mean \"log.level\"?");
  EXPECT_EQ(StoreError("data_dir = '/d'\n[[segment]]\nsise = '64MiB'\n"),
            "s.toml:3: unknown key \"segment[0].sise\"; did you mean \"segment[0].size\"?");
}

TEST(ConfigTest, KeysWithTheUnitOrInTheWrongTableAreSuggestedToo) {
  EXPECT_EQ(MasterError("data_dir = '/d'\nlease_ms = 5000\n"),
            "m.toml:2: unknown key \"lease_ms\"; did you mean \"lease\"?");
  EXPECT_EQ(MasterError("data_dir = '/d'\nlevel = 'info'\n"),
            "m.toml:2: unknown key \"level\"; did you mean \"log.level\"?");
  EXPECT_EQ(MasterError("data_dir = '/d'\nxyzzyxyzzyxyzzy = 1\n"),
            "m.toml:2: unknown key \"xyzzyxyzzyxyzzy\"");
}

TEST(ConfigTest, UnknownTablesAreRefused) {
  EXPECT_EQ(MasterError("data_dir = '/d'\n[metrics]\nport = 1\n"),
            "m.toml:2: unknown key \"metrics\"");
}

TEST(ConfigTest, UnknownFlagsAreRefusedWithTheNearestKey) {
  EXPECT_EQ(MasterError("data_dir = '/d'\n", {{"leas", "5s"}}),
            "flag: unknown key \"leas\"; did you mean \"lease\"?");
  EXPECT_EQ(MasterError("data_dir = '/d'\n", {{"log.lvl", "info"}}),
            "flag: unknown key \"log.lvl\"; did you mean \"log.level\"?");
}

TEST(ConfigTest, BadUnitsAreRefused) {
  EXPECT_THAT(MasterError("data_dir = '/d'\nlease = '10 parsecs'\n"),
              AllOf(StartsWith("m.toml:2: lease: \"10 parsecs\" is not a time"), HasSubstr("30s")));
  EXPECT_THAT(StoreError("data_dir = '/d'\nmax_inflight = '64G'\n"),
              AllOf(StartsWith("s.toml:2: max_inflight: \"64G\" is not a size"), HasSubstr("GiB")));
  EXPECT_THAT(MasterError("data_dir = '/d'\n", {{"lease", "soon"}}),
              StartsWith("flag: lease: \"soon\" is not a time"));
}

TEST(ConfigTest, ValuesOutOfRangeNameTheRange) {
  EXPECT_EQ(MasterError("data_dir = '/d'\nlease = '50ms'\n"),
            "m.toml:2: lease: 50ms is out of range: 100ms to 60s");
  EXPECT_EQ(MasterError("data_dir = '/d'\nlease = '61s'\n"),
            "m.toml:2: lease: 1m1s is out of range: 100ms to 60s");
  EXPECT_EQ(MasterError("data_dir = '/d'\ndata_port = 65536\n"),
            "m.toml:2: data_port: 65536 is out of range: at most 65535");
  EXPECT_EQ(MasterError("data_dir = '/d'\nio_threads = -1\n"),
            "m.toml:2: io_threads: -1 is negative");
  EXPECT_EQ(StoreError("data_dir = '/d'\n[[segment]]\nsize = '7MiB'\n"),
            "s.toml:3: segment[0].size: 7MiB is out of range: 8MiB to 64GiB");
  EXPECT_THAT(MasterError("data_dir = '/d'\nhigh_watermark = nan\n"),
              HasSubstr("out of range: a finite number"));
  EXPECT_EQ(MasterError("data_dir = '/d'\n", {{"lease", "61s"}}),
            "flag: lease: 1m1s is out of range: 100ms to 60s");
}

TEST(ConfigTest, TheEndsOfARangeAreInside) {
  config::MasterConfig config;
  EXPECT_OK(LoadMaster("data_dir = '/d'\nlease = '100ms'\ndata_port = 65535\n", &config));
  EXPECT_OK(LoadMaster("data_dir = '/d'\nlease = '60s'\ndata_port = 0\n", &config));
}

TEST(ConfigTest, AWrongFileValueIsRefusedEvenUnderAFlag) {
  EXPECT_THAT(MasterError("data_dir = '/d'\nlease = '50ms'\n", {{"lease", "5s"}}),
              StartsWith("m.toml:2: lease: "));
}

TEST(ConfigTest, ChoicesAreListed) {
  EXPECT_EQ(MasterError("data_dir = '/d'\n[log]\nlevel = 'loud'\n"),
            "m.toml:3: log.level: \"loud\" is not one of debug, info, warning, error");
}

TEST(ConfigTest, WrongTypesAreRefused) {
  EXPECT_EQ(MasterError("data_dir = 7\n"),
            "m.toml:1: data_dir: expected a string, got a whole number");
  EXPECT_EQ(MasterError("data_dir = '/d'\ndata_port = '7600'\n"),
            "m.toml:2: data_port: expected a whole number, got a string");
  EXPECT_EQ(MasterError("data_dir = '/d'\nlease = 1.5\n"),
            "m.toml:2: lease: expected a time like \"30s\", got a number with a fraction");
  EXPECT_EQ(MasterError("data_dir = '/d'\nlog = 'info'\n"),
            "m.toml:2: log: expected a table [log], got a string");
  EXPECT_EQ(StoreError("data_dir = '/d'\n[segment]\nsize = '64MiB'\n"),
            "s.toml:2: segment: expected tables headed [[segment]]");
  EXPECT_THAT(StoreError("data_dir = '/d'\nsegment = [1, 2]\n"),
              StartsWith("s.toml:2: segment: expected tables"));
  EXPECT_EQ(MasterError("data_dir = '/d'\n", {{"data_port", "seven"}}),
            "flag: data_port: \"seven\" is not a whole number");
}

TEST(ConfigTest, WholeNumbersAreNumbersWithAFractionToo) {
  // Taken as the number 1, which is out of range; a string would be of the wrong type.
  EXPECT_THAT(
      MasterError("data_dir = '/d'\nlease_share = 1\n"),
      AllOf(StartsWith("m.toml:2: lease_share: "), HasSubstr("0.9"), Not(HasSubstr("expected"))));
  EXPECT_THAT(MasterError("data_dir = '/d'\nlease_share = '1'\n"), HasSubstr("expected"));
}

TEST(ConfigTest, DuplicateKeysAreRefused) {
  EXPECT_THAT(MasterError("data_dir = '/d'\nlease = '5s'\nlease = '6s'\n"),
              StartsWith("m.toml:3: "));
}

TEST(ConfigTest, SyntaxErrorsNameTheirLine) {
  EXPECT_THAT(MasterError("data_dir = '/d'\nlease = \n"), StartsWith("m.toml:2: "));
  EXPECT_THAT(MasterError("data_dir = '/d'\n\n[log\n"), StartsWith("m.toml:3: "));
}

// Where toml++ asserts or calls unreachable what a file can reach.
TEST(ConfigTest, WrongHeadersAndForeignLettersAreSyntaxErrorsToo) {
  EXPECT_THAT(MasterError("data_dir = '/d'\n[:\n"), StartsWith("m.toml:2: "));
  EXPECT_THAT(MasterError("data_dir = '/d'\n\xc3\xa9t\xc3\xa9 = 1\n"), StartsWith("m.toml:2: "));
  EXPECT_THAT(MasterError("data_dir = '/d' \xc3\xa9\n"), StartsWith("m.toml:1: "));
  config::MasterConfig config;
  ASSERT_OK(LoadMaster("data_dir = '/\xc3\xa9t\xc3\xa9'  # \xc3\xa9\n", &config));
  EXPECT_EQ(config.data_dir(), "/\xc3\xa9t\xc3\xa9");
}

TEST(ConfigTest, MissingRequiredKeysNameTheirTable) {
  EXPECT_EQ(MasterError(""), "m.toml:1: missing required key \"data_dir\"");
  EXPECT_EQ(StoreError("data_dir = '/d'\n\n[[segment]]\nkind = 'file'\n"),
            "s.toml:3: missing required key \"segment[0].size\"");
}

TEST(ConfigTest, LinesAreBounded) {
  EXPECT_EQ(MasterError("data_dir = '/d'\n#" + std::string(4096, 'x') + "\n"),
            "m.toml:2: a line of more than 4096 bytes");
  config::MasterConfig config;
  EXPECT_OK(LoadMaster("data_dir = '/d'\n#" + std::string(4095, 'x'), &config));
}

TEST(ConfigTest, RequiredStringsAreNotEmpty) {
  EXPECT_EQ(MasterError("data_dir = ''\n"), "m.toml:1: data_dir: must not be empty");
}

TEST(ConfigTest, TextIsBounded) {
  EXPECT_EQ(MasterError(std::string((1 << 20) + 1, '\n')), "m.toml:1: more than 1048576 bytes");
}

TEST(ConfigTest, ThePrintOutIsAlignedAndSaysWhereValuesCameFrom) {
  LoadedConfig loaded;
  loaded.values = {{"lease", "10s", "default"}, {"log.level", "debug", "flag"}};
  EXPECT_EQ(loaded.ToString(),
            "lease     = 10s    (default)\n"
            "log.level = debug  (flag)\n");
}

TEST(ConfigTest, EveryKeyIsDescribedOnALine) {
  const std::string text = DescribeConfig(config::StoreConfig::descriptor());
  EXPECT_THAT(text,
              HasSubstr("a size like \"64GiB\", 4KiB to 1GiB, default 64KiB: sets the number"));
  EXPECT_THAT(text, HasSubstr("  segment[].kind "));
  EXPECT_THAT(text, HasSubstr("one of file, memfd, default file"));
  EXPECT_THAT(text, HasSubstr("a string, required: store id"));
  EXPECT_THAT(text, Not(HasSubstr("_ms")));
}

TEST(ConfigFileTest, IsReadAndNamedInErrors) {
  const TempDir dir;
  const std::string path = dir / "master.toml";
  WriteFile(path, "data_dir = '/d'\nbogus_key_here = 1\n");
  config::MasterConfig config;
  EXPECT_THAT(LoadConfigFile(path, {}, &config),
              StatusIs(StatusCode::kInvalidArgument, StartsWith(path + ":2: unknown key")));
  WriteFile(path, "data_dir = '/e'\n");
  ASSERT_OK(LoadConfigFile(path, {}, &config));
  EXPECT_EQ(config.data_dir(), "/e");
}

TEST(ConfigFileTest, AbsentFilesAndFoldersAreRefusedByName) {
  const TempDir dir;
  config::MasterConfig config;
  EXPECT_THAT(LoadConfigFile(dir / "none.toml", {}, &config),
              StatusIs(StatusCode::kNotFound, HasSubstr(dir / "none.toml")));
  EXPECT_THAT(LoadConfigFile(dir.path(), {}, &config),
              StatusIs(StatusCode::kInvalidArgument, EndsWith("not a regular file")));
}

TEST(ParseSizeTest, TakesBinaryAndDecimalUnits) {
  const std::pair<const char*, uint64_t> kCases[] = {
      {"0", 0},
      {"4096", 4096},
      {"1B", 1},
      {"4KiB", 4096},
      {"1.5MiB", 1'572'864},
      {"64GiB", 68'719'476'736},
      {"2TiB", 2'199'023'255'552},
      {"1GB", 1'000'000'000},
      {"2.5kB", 2500},
      {"7KB", 7000},
      {"0.0001KiB", 0},  // Rounded down.
      {"18446744073709551615", 18'446'744'073'709'551'615u},
      {"16383PiB", 18'445'618'173'802'708'992u},
  };
  for (const auto& [text, bytes] : kCases) {
    ASSERT_OK_AND_ASSIGN(const uint64_t parsed, ParseSize(text));
    EXPECT_EQ(parsed, bytes) << text;
  }
}

TEST(ParseSizeTest, RefusesEverythingElse) {
  for (const char* text : {"", " 1", "1 KiB", "-1", "+1", "1K", "1G", "KiB", ".5MiB", "1.MiB",
                           "1.5", "1.5B", "1e3", "0x10", "1.0000000000KiB", "18446744073709551616",
                           "16384PiB", "16383.9999999PiBx", "inf"}) {
    EXPECT_THAT(ParseSize(text), StatusIs(StatusCode::kInvalidArgument)) << text;
  }
}

TEST(ParseMillisTest, RoundsUpToMilliseconds) {
  const std::pair<const char*, uint64_t> kCases[] = {
      {"0", 0},          {"30s", 30'000},  {"2ms", 2},        {"500us", 1},   {"1ns", 1},
      {"1m30s", 90'000}, {"10m", 600'000}, {"1h", 3'600'000}, {"1.5s", 1500}, {"250", 250},
  };
  for (const auto& [text, ms] : kCases) {
    ASSERT_OK_AND_ASSIGN(const uint64_t parsed, ParseMillis(text));
    EXPECT_EQ(parsed, ms) << text;
  }
}

TEST(ParseMillisTest, RefusesEverythingElse) {
  for (const char* text : {"", "-1s", "+1s", " 1s", "1 s", "s", "inf", "1d", "1.5", "1s2"}) {
    EXPECT_THAT(ParseMillis(text), StatusIs(StatusCode::kInvalidArgument)) << text;
  }
}

TEST(FormatSizeTest, IsExactOrHasOneDecimal) {
  EXPECT_EQ(FormatSize(0), "0B");
  EXPECT_EQ(FormatSize(999), "999B");
  EXPECT_EQ(FormatSize(4096), "4KiB");
  EXPECT_EQ(FormatSize(1'572'864), "1.5MiB");
  EXPECT_EQ(FormatSize(68'719'476'736), "64GiB");
  EXPECT_EQ(FormatSize(1'503'238'554), "1.4GiB");  // 1.4 x 2^30 = 1503238553.6
}

class SecretFileTest : public testing::Test {
 protected:
  const TempDir dir_;
  const std::string path_ = dir_ / "token";
};

TEST_F(SecretFileTest, GivesTheBytesWithoutTheLastNewline) {
  WriteFile(path_, "0123456789abcdef0123456789abcdef\n", 0600);
  ASSERT_OK_AND_ASSIGN(const std::string secret, ReadSecretFile(path_, 32));
  EXPECT_EQ(secret, "0123456789abcdef0123456789abcdef");
  WriteFile(path_, "ab\n\n", 0400);
  ASSERT_OK_AND_ASSIGN(const std::string two, ReadSecretFile(path_, 3));
  EXPECT_EQ(two, "ab\n");
}

TEST_F(SecretFileTest, RefusesFilesThatOthersMayRead) {
  for (const int mode : {0640, 0604, 0620, 0602, 0700, 0644}) {
    WriteFile(path_, "0123456789abcdef", mode);
    EXPECT_THAT(ReadSecretFile(path_, 1),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("chmod 600 " + path_)))
        << mode;
  }
}

// The daemons' user has the token; root's shell runs the command line tool.
TEST_F(SecretFileTest, RootReadsWhatBelongsToAnother) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: not root";
  WriteFile(path_, "0123456789abcdef", 0600);
  ASSERT_EQ(chown(path_.c_str(), 12'345, 12'345), 0);
  ASSERT_OK_AND_ASSIGN(const std::string secret, ReadSecretFile(path_, 16));
  EXPECT_EQ(secret, "0123456789abcdef");
}

TEST_F(SecretFileTest, RefusesShortAndHugeSecretsWithoutShowingThem) {
  WriteFile(path_, "hunter2\n", 0600);
  EXPECT_THAT(ReadSecretFile(path_, 32),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("has 7 bytes"), HasSubstr("at least 32"),
                             Not(HasSubstr("hunter2")))));
  WriteFile(path_, std::string(65'537, 'x'), 0600);
  EXPECT_THAT(ReadSecretFile(path_, 32),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("more than 65536")));
}

TEST_F(SecretFileTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(ReadSecretFile(path_, 1),
              StatusIs(StatusCode::kNotFound, HasSubstr("secret file " + path_)));
  EXPECT_THAT(ReadSecretFile(dir_.path(), 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not a regular file")));
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(ReadSecretFile(path_, 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not a regular file")));
}

}  // namespace
}  // namespace cistern
