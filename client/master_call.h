// One request to the master and its reply, tried again as long as that can help.
//
//   - The connection broke: again after a short while, until the operation's deadline.
//   - The reply brings a partition map: ours was stale and nothing was done; again with the new
//   one.
//   - The reply brings a store directory: taken in, the answer stands.
#ifndef CISTERN_CLIENT_MASTER_CALL_H_
#define CISTERN_CLIENT_MASTER_CALL_H_

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client/master_link.h"
#include "client/operation.h"
#include "client/plain_status.h"
#include "transport/channel.h"

namespace cistern {

// Owns itself from Start() on; holds the operation until `done` has run (as one of its steps).
template <typename Request, typename Reply>
class MasterCall final : public transport::CallHandler {
 public:
  // The status is OK, or names the master. The reply is the callee's to take.
  using Done = absl::AnyInvocable<void(const absl::Status&, Reply&)>;

  static void Start(std::shared_ptr<Operation> operation, MasterLink* link,
                    transport::FrameType type, transport::FrameType reply_type, Request request,
                    Done done) {
    (new MasterCall(std::move(operation), link, type, reply_type, std::move(request),
                    std::move(done)))
        ->Attempt();
  }

 private:
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
  static constexpr absl::Duration kLongestPause = absl::Milliseconds(500);
  static constexpr int kMaxStaleMaps = 4;
  // Requests up to this many bytes take the connection that is kept for small ones.
  static constexpr size_t kSmallBytes = 8192;

  MasterCall(std::shared_ptr<Operation> operation, MasterLink* link, transport::FrameType type,
             transport::FrameType reply_type, Request request, Done done)
      : operation_(std::move(operation)),
        link_(*link),
        type_(type),
        reply_type_(reply_type),
        request_(std::move(request)),
        done_(std::move(done)) {}

  void Attempt() {
    if (absl::Status status = operation_->Interrupted(); !status.ok()) {
      return End(last_error_.ok() || absl::IsCancelled(status) ? status : last_error_);
    }
    if constexpr (requires(Request r) { r.set_map_version(0); }) {
      request_.set_map_version(link_.map_version());
    }
    if constexpr (requires(Request r) { r.set_directory_version(0); }) {
      request_.set_directory_version(link_.stores().directory_version());
    }
    request_.set_deadline_ms(operation_->RemainingMs());
    reply_.Clear();
    transport::CallSpec spec;
    spec.type = type_;
    spec.meta = request_.SerializeAsString();
    spec.small = spec.meta.size() <= kSmallBytes;
    // The call may end, and this with it, before StartCall returns.
    const std::shared_ptr<Operation> operation = operation_;
    operation->StartCall(link_.channel(), std::move(spec), this);
  }

  absl::Status OnFrame(const Answer& answer, transport::PayloadSink**,
                       std::unique_ptr<transport::PayloadSource>*) override {
    if (answer.type != reply_type_ || !answer.final || answer.payload_bytes != 0 ||
        !reply_.ParseFromArray(answer.meta.data(), static_cast<int>(answer.meta.size()))) {
      return absl::InternalError("the master's answer is none that this request can have");
    }
    return absl::OkStatus();
  }

  void OnDone(absl::Status status) override {
    status = PlainStatus(status);
    if (absl::IsUnavailable(status)) {
      last_error_ = std::move(status);
      pause_ = std::min(std::max(kFirstPause, pause_ * 2), kLongestPause);
      const std::shared_ptr<Operation> operation = operation_;
      return operation->After(pause_, [this] { Attempt(); });
    }
    if (!status.ok()) return End(status);
    if constexpr (requires(Reply r) { r.has_directory(); }) {
      if (reply_.has_directory()) link_.stores().Learn(reply_.directory());
    }
    if constexpr (requires(Reply r) { r.has_map(); }) {
      if (reply_.has_map()) {
        if (absl::Status learned = link_.Learn(reply_.map()); !learned.ok()) return End(learned);
        // GetMaps is the one whose answer is the map.
        if (reply_type_ != transport::FrameType::kGetMapsReply) {
          if (++stale_maps_ > kMaxStaleMaps) {
            return End(absl::AbortedError("the partition map keeps changing"));
          }
          return Attempt();
        }
      }
    }
    End(absl::OkStatus());
  }

  void End(const absl::Status& status) {
    const std::unique_ptr<MasterCall> self(this);
    done_(status.ok() ? status : link_.Explain(status), reply_);
  }

  const std::shared_ptr<Operation> operation_;
  MasterLink& link_;
  const transport::FrameType type_;
  const transport::FrameType reply_type_;
  Request request_;
  Reply reply_;
  Done done_;
  absl::Status last_error_;
  absl::Duration pause_ = absl::ZeroDuration();
  int stale_maps_ = 0;
};

// An operation that is one such call: for the calls that are only synchronous.
template <typename Request, typename Reply>
class MasterOperation final : public Operation {
 public:
  MasterOperation(const OperationEnv& env, const OperationOptions& options, MasterLink* link,
                  transport::FrameType type, transport::FrameType reply_type, Request request)
      : Operation(env, options),
        link_(*link),
        type_(type),
        reply_type_(reply_type),
        request_(std::move(request)) {}

  // After Wait().
  const absl::Status& status() const { return status_; }
  Reply& reply() { return reply_; }

 private:
  void Begin() override {
    MasterCall<Request, Reply>::Start(shared_from_this(), &link_, type_, reply_type_,
                                      std::move(request_),
                                      [this](const absl::Status& status, Reply& reply) {
                                        status_ = status;
                                        reply_ = std::move(reply);
                                        Finish();
                                      });
  }

  MasterLink& link_;
  const transport::FrameType type_;
  const transport::FrameType reply_type_;
  Request request_;
  absl::Status status_;
  Reply reply_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_MASTER_CALL_H_
