// The handshake that opens a connection, as proto/handshake.proto tells it: bytes in, bytes out. No
// sockets, no time. Every wire and the store's session use it.
#ifndef CISTERN_TRANSPORT_HANDSHAKE_H_
#define CISTERN_TRANSPORT_HANDSHAKE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/handshake.pb.h"
#include "transport/identity.h"

namespace cistern::transport {

// The versions of the protocol that this build speaks.
struct VersionRange {
  uint32_t min = 1;
  uint32_t max = 1;
};

// HMAC-SHA-256(token, role || first || second || pool id); role is "S" or "C". 32 bytes.
std::string HandshakeProof(std::string_view token, char role, std::string_view first_nonce,
                           std::string_view second_nonce, const PoolId& pool_id);
// Compares in constant time.
bool ProofsEqual(std::string_view a, std::string_view b);
// 16 bytes from the system's generator.
std::string RandomNonce();

// What a server offers beside its identity.
struct ServerOffer {
  uint32_t max_meta_bytes = 0;
  uint32_t max_keys = 0;
  uint64_t max_payload_bytes = 0;
  uint64_t features = 0;
  VersionRange versions;
};

// The calling side: MakeHello, then OnHelloAck, whose Auth is sent, then AuthOk is awaited. One
// object per connection. Not thread-safe. Borrows `identity`.
class ClientHandshake {
 public:
  ClientHandshake(const LocalIdentity& identity, std::string expected_peer_id, bool small_lane,
                  uint64_t features = 0, VersionRange versions = {});
  wire::Hello MakeHello() const;
  // Checks the server's proof before anything else is told to it. PermissionDenied: it does not
  // know our token. FailedPrecondition: no common version. Unavailable: another peer than the one
  // expected answers at this address. InvalidArgument: malformed.
  absl::StatusOr<wire::Auth> OnHelloAck(const wire::HelloAck& ack);
  // Valid after OnHelloAck; `address` and `wire` are the caller's to fill.
  const PeerInfo& peer() const { return peer_; }

 private:
  const LocalIdentity& identity_;
  const std::string expected_peer_id_;
  const bool small_lane_;
  const uint64_t features_;
  const VersionRange versions_;
  const std::string nonce_;
  PeerInfo peer_;
};

// The serving side: OnHello, whose HelloAck is sent, then OnAuth. Not thread-safe. Borrows
// `identity`.
class ServerHandshake {
 public:
  ServerHandshake(const LocalIdentity& identity, const ServerOffer& offer);
  // FailedPrecondition names both version ranges; InvalidArgument: malformed. Whether this is the
  // peer that was meant is the caller's to judge, who sees proof and peer id in the answer.
  absl::StatusOr<wire::HelloAck> OnHello(const wire::Hello& hello);
  // PermissionDenied: the caller does not know the token.
  absl::Status OnAuth(const wire::Auth& auth) const;
  const PeerInfo& peer() const { return peer_; }
  bool small_lane() const { return small_lane_; }

 private:
  const LocalIdentity& identity_;
  const ServerOffer offer_;
  const std::string nonce_;
  std::string peer_nonce_;
  PeerInfo peer_;
  bool small_lane_ = false;
};

}  // namespace cistern::transport

#endif  // CISTERN_TRANSPORT_HANDSHAKE_H_
