// What an entry of a port's GID table means. Pure.
#ifndef CISTERN_TRANSPORT_RDMA_GID_H_
#define CISTERN_TRANSPORT_RDMA_GID_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace cistern::transport::rdma {

using Gid = std::array<uint8_t, 16>;  // as on the wire: the form of an IPv6 address

enum class GidType { kInfiniband, kRoceV1, kRoceV2 };

struct GidEntry {
  int index = 0;
  Gid gid = {};
  GidType type = GidType::kInfiniband;
  std::string net_device = {};  // whose address it is; "" on InfiniBand
};

bool IsZero(const Gid& gid);
bool IsIpv4(const Gid& gid);       // ::ffff:a.b.c.d
bool IsLinkLocal(const Gid& gid);  // fe80::/10
// "10.0.0.1", "fe80::1": what rdma_cm is told to bind to. On InfiniBand it is no IP address.
std::string GidText(const Gid& gid);
std::string GidTypeName(GidType type);  // "InfiniBand", "RoCE v1", "RoCE v2"

// The entry to use where nobody names one, null of none: RoCE v2 before v1 (whose packets no router
// forwards); then IPv4, then other addresses, then link-local ones (which need a scope); then the
// lower index. InfiniBand: the lowest.
const GidEntry* PreferredGid(const std::vector<GidEntry>& entries);

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_GID_H_
