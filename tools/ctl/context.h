// What every subcommand of cisternctl gets: how to reach the pool, where to print, how to end.
#ifndef CISTERN_TOOLS_CTL_CONTEXT_H_
#define CISTERN_TOOLS_CTL_CONTEXT_H_

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "tools/ctl/admin_client.h"
#include "tools/ctl/connection.h"

namespace cistern {
class Client;
}  // namespace cistern

namespace cistern::ctl {

// cisternctl's exit codes; shown by --help.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;       // not found, refused, or failed on the way
inline constexpr int kExitUsage = 2;        // wrong arguments or files
inline constexpr int kExitUnreachable = 3;  // no master or store answered in time
inline constexpr int kExitDenied = 4;       // the token is wrong or missing
int ExitCodeOf(const absl::Status& status);

struct Context {
  ConnectionFlags connection = {};
  std::string output = "table";  // or "json"
  std::string timeout = {};      // empty = the configuration file's deadline, else 5 s
  std::ostream& out;
  std::ostream& err;
  int exit_code = kExitOk;
  // Whom the command has turned to: where nobody answers as expected, Run says what is there.
  mutable std::string asked_grpc = {};
  mutable std::string asked_data = {};

  bool json() const { return output == "json"; }
  // InvalidArgument unless `timeout` is empty or a time such as "5s".
  absl::StatusOr<absl::Duration> Timeout(const Connection& resolved) const;
  // Its calls end after `patience`; 0 = after Timeout().
  absl::StatusOr<std::unique_ptr<AdminClient>> Admin(
      absl::Duration patience = absl::ZeroDuration()) const;
  // The client library, over the data port.
  absl::StatusOr<std::unique_ptr<Client>> Data() const;
  // `message` as JSON (of its fields `only` this one, if named), or `text` for people, as was asked
  // for.
  void Print(const google::protobuf::Message& message, const std::string& text,
             const std::string& only = "") const;
  // Runs a subcommand; an error goes to `err` and sets the exit code.
  void Run(const std::function<absl::Status()>& command);

 private:
  // What listens where the command was not answered; "" = nothing that explains it.
  std::string WrongPort(const absl::Status& status) const;
};

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_CONTEXT_H_
