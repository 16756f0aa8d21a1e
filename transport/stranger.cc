#include "transport/stranger.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cistern::transport {
namespace {

constexpr size_t kShownBytes = 24;

// The first frame of an HTTP/2 server: SETTINGS, or GOAWAY where it complains first. Of stream 0.
bool IsHttp2Frame(absl::string_view in) {
  return in.size() >= kStrangerBytes && in[0] == 0 && (in[3] == 4 || in[3] == 7) &&
         in.substr(5, 4) == absl::string_view("\0\0\0\0", 4);
}

bool IsHttpRequest(absl::string_view in) {
  return absl::StartsWith(in, "GET /") || absl::StartsWith(in, "POST /") ||
         absl::StartsWith(in, "HEAD /") || absl::StartsWith(in, "PUT /") ||
         absl::StartsWith(in, "OPTIONS ");
}

// A record of TLS: a handshake or an alert.
bool IsTls(absl::string_view in) {
  return in.size() >= 3 && (in[0] == 0x16 || in[0] == 0x15) && in[1] == 3;
}

}  // namespace

std::string DescribeStranger(const uint8_t* in, size_t bytes) {
  const absl::string_view text(reinterpret_cast<const char*>(in), bytes);
  if (IsHttp2Frame(text) || absl::StartsWith(text, "PRI * HTTP/2")) {
    return "the peer speaks HTTP/2, as a master's grpc_port does and no data_port";
  }
  if (absl::StartsWith(text, "HTTP/") || IsHttpRequest(text)) {
    return "the peer speaks HTTP, as a daemon's http_port does and no data_port";
  }
  if (IsTls(text)) return "the peer speaks TLS, which no data_port does";
  const absl::string_view shown = text.substr(0, std::min(text.size(), kShownBytes));
  return absl::StrCat("the peer speaks no protocol of Cistern: it begins with \"",
                      absl::CHexEscape(shown), "\"");
}

}  // namespace cistern::transport
