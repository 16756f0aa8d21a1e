// Tells stores of bytes that did not fit their digests, in the background.
#ifndef CISTERN_CLIENT_BAD_REPORTS_H_
#define CISTERN_CLIENT_BAD_REPORTS_H_

#include <atomic>
#include <string>

#include "base/clock.h"
#include "client/store_table.h"
#include "transport/channel.h"

namespace cistern {

// Thread-safe. Bounded: a report beyond kMaxPending is dropped (the store scrubs by itself, and the
// next reader reports again). Borrows the I/O context.
class BadReports {
 public:
  static constexpr int kMaxPending = 64;

  explicit BadReports(Clock* clock) : clock_(*clock), group_([] {}) {}

  // `meta` is a wire::ReportBad.
  void Send(const StoreTable::Link& link, std::string meta);
  // Ends what is pending. After it nothing may be sent.
  void CancelAll(transport::IoContext* io);

 private:
  class Report;

  Clock& clock_;
  transport::CallGroup group_;
};

}  // namespace cistern

#endif  // CISTERN_CLIENT_BAD_REPORTS_H_
