#include <grpcpp/create_channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/poolbench/echo.grpc.pb.h"
#include "tools/poolbench/limits.h"
#include "tools/poolbench/threads.h"

namespace cistern::poolbench {
namespace {

class EchoService final : public Echo::CallbackService {
 public:
  explicit EchoService(size_t reply_bytes) : reply_(reply_bytes, 'r') {}
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const EchoRequest*,
                                 EchoReply* reply) override {
    reply->set_payload(reply_);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const std::string reply_;
};

class GrpcEchoMeasurement final : public Measurement {
 public:
  GrpcEchoMeasurement(const EchoBytes& bytes, double units, uint64_t threads, Clock& clock)
      : units_(units), bytes_(bytes), threads_(threads), clock_(clock), service_(bytes_.reply) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~GrpcEchoMeasurement() override {
    if (server_ != nullptr) server_->Shutdown();
  }
  bool started() const { return server_ != nullptr && port_ != 0; }

  absl::StatusOr<Round> Run(absl::Duration time) override {
    absl::StatusOr<Work> work =
        RunThreads(threads_, clock_, [&](uint64_t) { return CallUntil(clock_.Mono() + time); });
    if (!work.ok()) return work.status();
    Round round;
    round.rate = work->rate();
    round.calls = work->calls;
    round.latency = work->latency;
    return round;
  }

 private:
  absl::StatusOr<Work> CallUntil(MonoTime end) {
    const auto stub = Echo::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port_), grpc::InsecureChannelCredentials()));
    EchoRequest request;
    request.set_payload(std::string(bytes_.request, 'q'));
    EchoReply reply;
    Work work;
    for (MonoTime now = clock_.Mono(); now < end; ++work.calls) {
      grpc::ClientContext context;
      const grpc::Status status = stub->Call(&context, request, &reply);
      if (!status.ok()) return absl::InternalError(status.error_message());
      const MonoTime then = std::exchange(now, clock_.Mono());
      work.latency.Record(now - then);
    }
    work.units = static_cast<double>(work.calls) * units_;
    return work;
  }

  const double units_;
  const EchoBytes bytes_;
  const uint64_t threads_;
  Clock& clock_;
  EchoService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Measurement>> MakeGrpcEcho(const EchoBytes& bytes,
                                                          double units_per_call, uint64_t threads,
                                                          Clock& clock) {
  auto echo = std::make_unique<GrpcEchoMeasurement>(bytes, units_per_call, threads, clock);
  if (!echo->started()) return absl::UnavailableError("the gRPC echo server did not start");
  return echo;
}

}  // namespace cistern::poolbench
