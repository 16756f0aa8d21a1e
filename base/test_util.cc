#include "base/test_util.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <system_error>

namespace cistern {

TempDir::TempDir() {
  // Not TEST_TMPDIR: Bazel's paths are too long for a UNIX socket.
  std::string path = "/tmp/cistern-test-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    std::cerr << "mkdtemp " << path << ": " << std::strerror(errno) << std::endl;
    std::abort();
  }
  path_ = path;
}

TempDir::~TempDir() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  if (error) ADD_FAILURE() << "cannot remove " << path_ << ": " << error.message();
}

void FillPattern(uint64_t seed, void* out, size_t n) {
  // SplitMix64 (Steele, Lea and Flood 2014), from a state that mixes the seed.
  uint64_t state = (seed + 1) * 0xD1342543DE82EF95;
  auto* next = static_cast<char*>(out);
  while (n > 0) {
    state += 0x9E3779B97F4A7C15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    z ^= z >> 31;
    const size_t step = std::min(n, sizeof(z));
    std::memcpy(next, &z, step);
    next += step;
    n -= step;
  }
}

std::string PatternBytes(uint64_t seed, size_t n) {
  std::string out(n, '\0');
  FillPattern(seed, out.data(), n);
  return out;
}

void WriteFile(const std::string& path, std::string_view text, int mode) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (!out || chmod(path.c_str(), static_cast<mode_t>(mode)) != 0) {
    ADD_FAILURE() << "cannot write " << path << ": " << std::strerror(errno);
  }
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) ADD_FAILURE() << "cannot read " << path << ": " << std::strerror(errno);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace cistern
