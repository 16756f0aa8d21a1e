// A StoreLink that a listener has accepted.
#ifndef CISTERN_TRANSPORT_RDMA_ACCEPTED_LINK_H_
#define CISTERN_TRANSPORT_RDMA_ACCEPTED_LINK_H_

#include <memory>
#include <utility>

#include "transport/rdma/loop_part.h"
#include "transport/rdma/rdma_link.h"

namespace cistern::transport::rdma {

class ServerCm final : public CmSide {
 public:
  ServerCm(CmId id, std::shared_ptr<Peer> peer) : id_(std::move(id)), peer_(std::move(peer)) {}
  absl::Status Check(Endpoint*) override {
    return peer_->gone() ? absl::UnavailableError("the peer closed the connection")
                         : absl::OkStatus();
  }
  void Disconnect() override {
    const auto verbs = LoadVerbs();
    if (verbs.ok()) (*verbs)->cm.disconnect(id_.get());
  }

 private:
  CmId id_;
  const std::shared_ptr<Peer> peer_;
};

class AcceptedRdmaLink final : public StoreLink {
 public:
  AcceptedRdmaLink(std::unique_ptr<Endpoint> endpoint, CmId id, std::shared_ptr<Peer> peer)
      : StoreLink(std::move(endpoint), std::make_unique<ServerCm>(std::move(id), peer)),
        peer_(std::move(peer)) {}
  Peer& peer() { return *peer_; }

 private:
  const std::shared_ptr<Peer> peer_;
};

}  // namespace cistern::transport::rdma

#endif  // CISTERN_TRANSPORT_RDMA_ACCEPTED_LINK_H_
