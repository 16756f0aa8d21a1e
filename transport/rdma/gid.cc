#include "transport/rdma/gid.h"

#include <arpa/inet.h>

#include <algorithm>
#include <tuple>

namespace cistern::transport::rdma {
namespace {

// Lower is better.
auto RankOf(const GidEntry& entry) {
  const int type = entry.type == GidType::kRoceV1 ? 1 : 0;
  const int address = IsIpv4(entry.gid) ? 0 : IsLinkLocal(entry.gid) ? 2 : 1;
  return std::make_tuple(type, entry.type == GidType::kInfiniband ? 0 : address, entry.index);
}

}  // namespace

bool IsZero(const Gid& gid) {
  return std::all_of(gid.begin(), gid.end(), [](uint8_t byte) { return byte == 0; });
}

bool IsIpv4(const Gid& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10, [](uint8_t byte) { return byte == 0; }) &&
         gid[10] == 0xff && gid[11] == 0xff;
}

bool IsLinkLocal(const Gid& gid) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

std::string GidText(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  if (IsIpv4(gid)) {
    inet_ntop(AF_INET, gid.data() + 12, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
  }
  return text;
}

std::string GidTypeName(GidType type) {
  switch (type) {
    case GidType::kInfiniband:
      return "InfiniBand";
    case GidType::kRoceV1:
      return "RoCE v1";
    case GidType::kRoceV2:
      return "RoCE v2";
  }
  return "?";
}

const GidEntry* PreferredGid(const std::vector<GidEntry>& entries) {
  const auto best =
      std::min_element(entries.begin(), entries.end(),
                       [](const GidEntry& a, const GidEntry& b) { return RankOf(a) < RankOf(b); });
  return best == entries.end() ? nullptr : &*best;
}

}  // namespace cistern::transport::rdma
