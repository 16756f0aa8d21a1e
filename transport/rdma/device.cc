#include "transport/rdma/device.h"

namespace cistern::transport::rdma {

std::string LinkLayerName(LinkLayer layer) {
  switch (layer) {
    case LinkLayer::kUnknown:
      return "unknown";
    case LinkLayer::kInfiniband:
      return "InfiniBand";
    case LinkLayer::kEthernet:
      return "Ethernet (RoCE)";
  }
  return "?";
}

std::string LinkStateName(LinkState state) {
  switch (state) {
    case LinkState::kUnknown:
      return "unknown";
    case LinkState::kDown:
      return "down";
    case LinkState::kInit:
      return "initializing";
    case LinkState::kArmed:
      return "armed";
    case LinkState::kActive:
      return "active";
  }
  return "?";
}

}  // namespace cistern::transport::rdma
