#include "client/bad_reports.h"

#include <memory>
#include <utility>

#include "transport/io_context.h"

namespace cistern {

// Owns itself; keeps the channel until it has ended.
class BadReports::Report final : public transport::CallHandler {
 public:
  absl::Status OnFrame(const Answer&, transport::PayloadSink**,
                       std::unique_ptr<transport::PayloadSource>*) override {
    return absl::OkStatus();  // What the store found is the store's business.
  }
  void OnDone(absl::Status) override { delete this; }
};

void BadReports::Send(const StoreTable::Link& link, std::string meta) {
  if (group_.pending() >= kMaxPending) return;
  transport::CallSpec spec;
  spec.type = transport::FrameType::kReportBad;
  spec.meta = std::move(meta);
  spec.deadline = clock_.Mono() + absl::Seconds(5);
  spec.small = true;
  spec.fail_fast = true;
  link.channel->Start(std::move(spec), new Report, &group_);
}

void BadReports::CancelAll(transport::IoContext* io) {
  group_.Cancel();
  io->Wait(group_);
}

}  // namespace cistern
