// What listens at an address: for people who have named the wrong port.
#ifndef CISTERN_TOOLS_CTL_PORT_PROBE_H_
#define CISTERN_TOOLS_CTL_PORT_PROBE_H_

#include <string>

#include "absl/time/time.h"
#include "base/clock.h"

namespace cistern::ctl {

struct PortFinding {
  enum class Kind {
    kNothing,     // nobody listens, or the address cannot be reached
    kSilent,      // somebody listens and says nothing that we know
    kMasterData,  // frames, a master
    kStoreData,   // frames, a store
    kGrpc,        // HTTP/2, as the master's gRPC port speaks it
    kHttp,        // a daemon's HTTP port
    kOtherMajor,  // frames, of no protocol version that we speak
    kOther,       // something else that speaks
  };
  Kind kind = Kind::kNothing;
  // Of a daemon's HTTP port, as it tells them; "" = not told.
  std::string daemon;  // "master", "store"
  std::string grpc;    // the master's gRPC port
  std::string data;    // its own data port
  std::string master;  // of a store: the master's gRPC port
};

// Asks in all the ways that Cistern's ports understand, each over a connection of its own, within
// about `patience`. Proves nothing and needs no token.
PortFinding ProbePort(const std::string& address, absl::Duration patience, Clock& clock);

// What to tell who wanted the master's gRPC port (or its data port) at `address` and got no answer
// of the right kind there: "" where the finding explains nothing.
std::string AdviceForGrpc(const std::string& address, const PortFinding& finding);
std::string AdviceForData(const std::string& address, const PortFinding& finding);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_PORT_PROBE_H_
