// Who a process is towards its peers, and what it learned of a peer in the handshake
// (proto/handshake.proto).
#ifndef CISTERN_TRANSPORT_IDENTITY_H_
#define CISTERN_TRANSPORT_IDENTITY_H_

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "proto/handshake.pb.h"

namespace cistern::transport {

struct LocalIdentity {
  wire::PeerKind kind = wire::PEER_UNKNOWN;
  std::string token;    // the pool token; empty = none
  PoolId pool_id;       // servers only: clients learn it
  std::string peer_id;  // servers: 16 bytes, store id or the master's
  uint64_t incarnation = 0;
  BootId boot_id;
  std::string software_version;
};

struct PeerInfo {
  wire::PeerKind kind = wire::PEER_UNKNOWN;
  PoolId pool_id;
  std::string peer_id;
  uint64_t incarnation = 0;
  BootId boot_id;
  std::string address;  // for people: "127.0.0.1:7610"
  uint64_t features = 0;
  uint32_t max_meta_bytes = 0;
  uint32_t max_keys = 0;
  uint64_t max_payload_bytes = 0;
  std::string wire;  // "tcp", "shm", "rdma", "fake"
};

// The kernel's boot id (/proc/sys/kernel/random/boot_id); zero where there is none.
BootId ReadBootId();

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_IDENTITY_H_
