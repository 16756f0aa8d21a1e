#include "tools/poolbench/limits.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tools/poolbench/socket_pair.h"
#include "tools/poolbench/threads.h"

namespace cistern::poolbench {
namespace {

constexpr size_t kPieceBytes = 256 << 10;

Round RoundOf(const Work& work) {
  Round round;
  round.rate = work.rate();
  round.calls = work.calls;
  round.latency = work.latency;
  return round;
}

class TcpPairMeasurement final : public Measurement {
 public:
  TcpPairMeasurement(uint64_t bytes, uint64_t connections, uint64_t threads, Clock& clock)
      : threads_(std::min(threads, connections)),
        connections_(connections),
        share_(bytes / threads_),
        clock_(clock) {
    // Written, not only allocated: pages that were never touched share one page of zeros.
    from_.assign(share_ * threads_, 1);
    to_.assign(share_ * threads_, 2);
  }

  absl::StatusOr<Round> Run(absl::Duration time) override {
    std::vector<TcpPair> pairs;
    for (uint64_t i = 0; i < connections_; ++i) {
      CISTERN_ASSIGN_OR_RETURN(TcpPair pair, TcpPair::Connect());
      pairs.push_back(std::move(pair));
    }
    std::vector<std::thread> writers;
    writers.reserve(threads_);
    for (uint64_t t = 0; t < threads_; ++t) {
      writers.emplace_back([this, t, &pairs] {
        size_t at = 0;
        for (size_t turn = 0;; ++turn, at = Next(at)) {
          const int fd = pairs[ConnectionOf(t, turn)].server();
          if (!WriteAll(fd, from_.data() + t * share_ + at, Piece(at))) return;
        }
      });
    }
    absl::StatusOr<Work> work =
        RunThreads(threads_, clock_, [&](uint64_t t) -> absl::StatusOr<Work> {
          const MonoTime end = clock_.Mono() + time;
          uint64_t bytes = 0;
          size_t at = 0;
          for (size_t turn = 0; clock_.Mono() < end; ++turn, at = Next(at)) {
            const int fd = pairs[ConnectionOf(t, turn)].client();
            if (!ReadAll(fd, to_.data() + t * share_ + at, Piece(at))) {
              return absl::InternalError("the bare pair broke");
            }
            bytes += Piece(at);
          }
          Work done;
          done.units = static_cast<double>(bytes);
          return done;
        });
    for (TcpPair& pair : pairs) pair.Shutdown();
    for (std::thread& writer : writers) writer.join();
    if (!work.ok()) return work.status();
    return RoundOf(*work);
  }

 private:
  size_t Piece(size_t at) const { return std::min<size_t>(kPieceBytes, share_ - at); }
  size_t Next(size_t at) const { return at + Piece(at) == share_ ? 0 : at + Piece(at); }
  // Thread t has connections t, t + threads, ...; it takes them in turn, at both ends.
  size_t ConnectionOf(uint64_t t, size_t turn) const {
    const uint64_t own = (connections_ - t + threads_ - 1) / threads_;
    return t + turn % own * threads_;
  }

  const uint64_t threads_;
  const uint64_t connections_;
  const size_t share_;
  Clock& clock_;
  std::vector<uint8_t> from_;
  std::vector<uint8_t> to_;
};

class TcpEchoMeasurement final : public Measurement {
 public:
  TcpEchoMeasurement(const EchoBytes& bytes, double units, uint64_t threads, Clock& clock)
      : units_(units), bytes_(bytes), threads_(threads), clock_(clock) {}

  absl::StatusOr<Round> Run(absl::Duration time) override {
    std::vector<TcpPair> pairs;
    for (uint64_t i = 0; i < threads_; ++i) {
      CISTERN_ASSIGN_OR_RETURN(TcpPair pair, TcpPair::Connect());
      pairs.push_back(std::move(pair));
    }
    std::vector<std::thread> servers;
    servers.reserve(pairs.size());
    for (const TcpPair& pair : pairs) {
      servers.emplace_back([this, fd = pair.server()] {
        std::vector<uint8_t> request(bytes_.request);
        const std::vector<uint8_t> reply(bytes_.reply, 1);
        while (ReadAll(fd, request.data(), request.size()) &&
               WriteAll(fd, reply.data(), reply.size())) {
        }
      });
    }
    absl::StatusOr<Work> work =
        RunThreads(threads_, clock_, [&](uint64_t i) { return Echo(pairs[i].client(), time); });
    for (TcpPair& pair : pairs) pair.Shutdown();
    for (std::thread& server : servers) server.join();
    if (!work.ok()) return work.status();
    return RoundOf(*work);
  }

 private:
  absl::StatusOr<Work> Echo(int fd, absl::Duration time) {
    const std::vector<uint8_t> request(bytes_.request, 1);
    std::vector<uint8_t> reply(bytes_.reply);
    Work work;
    MonoTime now = clock_.Mono();
    for (const MonoTime end = now + time; now < end; ++work.calls) {
      if (!WriteAll(fd, request.data(), request.size()) ||
          !ReadAll(fd, reply.data(), reply.size())) {
        return absl::InternalError("the bare echo broke");
      }
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
};

}  // namespace

absl::StatusOr<std::unique_ptr<Measurement>> MakeTcpPair(uint64_t bytes, uint64_t connections,
                                                         uint64_t threads, Clock& clock) {
  return std::make_unique<TcpPairMeasurement>(bytes, connections, threads, clock);
}

EchoBytes LookupBytes(uint64_t keys) {
  // A frame's header of 32 bytes, about as much of other fields; 16 bytes a key there, a bit and
  // two bytes a key back.
  return {64 + 16 * keys, 64 + (keys + 7) / 8 + 2 * keys};
}

EchoBytes GetBytes(uint64_t chunks, uint64_t chunk_bytes) {
  // Back come 33 bytes a chunk in columns, its digest, and the chunk.
  return {64 + 16 * chunks, 64 + chunks * (41 + chunk_bytes)};
}

absl::StatusOr<std::unique_ptr<Measurement>> MakeTcpEcho(const EchoBytes& bytes,
                                                         double units_per_call, uint64_t threads,
                                                         Clock& clock) {
  return std::make_unique<TcpEchoMeasurement>(bytes, units_per_call, threads, clock);
}

}  // namespace cistern::poolbench
