#include "transport/handshake.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/key_hash.h"
#include "base/status.h"

namespace cistern::transport {
namespace {

constexpr size_t kNonceBytes = 16;
constexpr size_t kProofBytes = 32;

absl::Status CheckBytes(const std::string& field, size_t bytes, const char* what) {
  if (field.size() == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("handshake: ", what, " has ", field.size(), " bytes, not ", bytes));
}

std::string RangeText(uint32_t min, uint32_t max) {
  return min == max ? absl::StrCat(min) : absl::StrCat(min, " to ", max);
}

BootId BootIdOrZero(const std::string& bytes) {
  const auto id = BootId::Parse(bytes);
  return id.ok() ? *id : BootId{};
}

}  // namespace

std::string HandshakeProof(std::string_view token, char role, std::string_view first_nonce,
                           std::string_view second_nonce, const PoolId& pool_id) {
  std::string text(1, role);
  text.append(first_nonce).append(second_nonce).append(pool_id.view());
  const auto mac = HmacSha256(token, text);
  return std::string(reinterpret_cast<const char*>(mac.data()), mac.size());
}

bool ProofsEqual(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string RandomNonce() {
  std::string nonce(kNonceBytes, '\0');
  RandomBytes(nonce.data(), nonce.size());
  return nonce;
}

ClientHandshake::ClientHandshake(const LocalIdentity& identity, std::string expected_peer_id,
                                 bool small_lane, uint64_t features, VersionRange versions)
    : identity_(identity),
      expected_peer_id_(std::move(expected_peer_id)),
      small_lane_(small_lane),
      features_(features),
      versions_(versions),
      nonce_(RandomNonce()) {}

wire::Hello ClientHandshake::MakeHello() const {
  wire::Hello hello;
  hello.set_major_min(versions_.min);
  hello.set_major_max(versions_.max);
  hello.set_features(features_);
  hello.set_kind(identity_.kind);
  hello.set_incarnation(identity_.incarnation);
  hello.set_boot_id(std::string(identity_.boot_id.view()));
  hello.set_nonce(nonce_);
  hello.set_expected_peer_id(expected_peer_id_);
  hello.set_small_lane(small_lane_);
  return hello;
}

absl::StatusOr<wire::Auth> ClientHandshake::OnHelloAck(const wire::HelloAck& ack) {
  CISTERN_RETURN_IF_ERROR(CheckBytes(ack.pool_id(), PoolId::kBytes, "pool id"));
  CISTERN_RETURN_IF_ERROR(CheckBytes(ack.nonce(), kNonceBytes, "nonce"));
  CISTERN_RETURN_IF_ERROR(CheckBytes(ack.proof(), kProofBytes, "proof"));
  const PoolId pool_id = PoolId::FromBytes(ack.pool_id().data());
  // Before anything else: does it know the token?
  if (!ProofsEqual(ack.proof(),
                   HandshakeProof(identity_.token, 'S', nonce_, ack.nonce(), pool_id))) {
    return absl::PermissionDeniedError(
        identity_.token.empty()
            ? "the server has a pool token and this side has none"
            : "the server could not prove that it knows our pool token: is it the same pool?");
  }
  if (ack.major() < versions_.min || ack.major() > versions_.max) {
    return absl::FailedPreconditionError(absl::StrCat("the server chose protocol version ",
                                                      ack.major(), ", this side speaks ",
                                                      RangeText(versions_.min, versions_.max)));
  }
  if (!expected_peer_id_.empty() && ack.peer_id() != expected_peer_id_) {
    return absl::UnavailableError("another store answers at this address");
  }
  peer_.kind = ack.kind();
  peer_.pool_id = pool_id;
  peer_.peer_id = ack.peer_id();
  peer_.incarnation = ack.incarnation();
  peer_.features = ack.features() & features_;
  peer_.max_meta_bytes = ack.max_meta_bytes();
  peer_.max_keys = ack.max_keys();
  peer_.max_payload_bytes = ack.max_payload_bytes();
  wire::Auth auth;
  auth.set_proof(HandshakeProof(identity_.token, 'C', ack.nonce(), nonce_, pool_id));
  return auth;
}

ServerHandshake::ServerHandshake(const LocalIdentity& identity, const ServerOffer& offer)
    : identity_(identity), offer_(offer), nonce_(RandomNonce()) {}

absl::StatusOr<wire::HelloAck> ServerHandshake::OnHello(const wire::Hello& hello) {
  CISTERN_RETURN_IF_ERROR(CheckBytes(hello.nonce(), kNonceBytes, "nonce"));
  const uint32_t low = std::max(hello.major_min(), offer_.versions.min);
  const uint32_t high = std::min(hello.major_max(), offer_.versions.max);
  if (low > high) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no common protocol version: the caller speaks ",
        RangeText(hello.major_min(), hello.major_max()), ", this server (",
        identity_.software_version, ") ", RangeText(offer_.versions.min, offer_.versions.max)));
  }
  peer_nonce_ = hello.nonce();
  small_lane_ = hello.small_lane();
  peer_.kind = hello.kind();
  peer_.pool_id = identity_.pool_id;
  peer_.incarnation = hello.incarnation();
  peer_.boot_id = BootIdOrZero(hello.boot_id());
  peer_.features = hello.features() & offer_.features;

  wire::HelloAck ack;
  ack.set_major(high);
  ack.set_features(peer_.features);
  ack.set_kind(identity_.kind);
  ack.set_incarnation(identity_.incarnation);
  ack.set_pool_id(std::string(identity_.pool_id.view()));
  ack.set_peer_id(identity_.peer_id);
  ack.set_nonce(nonce_);
  ack.set_proof(HandshakeProof(identity_.token, 'S', peer_nonce_, nonce_, identity_.pool_id));
  ack.set_max_meta_bytes(offer_.max_meta_bytes);
  ack.set_max_keys(offer_.max_keys);
  ack.set_max_payload_bytes(offer_.max_payload_bytes);
  ack.set_software_version(identity_.software_version);
  return ack;
}

absl::Status ServerHandshake::OnAuth(const wire::Auth& auth) const {
  if (ProofsEqual(auth.proof(),
                  HandshakeProof(identity_.token, 'C', nonce_, peer_nonce_, identity_.pool_id))) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError("the caller does not know this pool's token");
}

}  // namespace cistern::transport
