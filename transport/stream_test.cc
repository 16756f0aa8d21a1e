// SendQueue and FrameReader: what one makes the other takes, whatever the cuts.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "gtest/gtest.h"
#include "transport/conformance/test_peer.h"
#include "transport/frame_reader.h"
#include "transport/send_queue.h"

namespace cistern::transport {
namespace {

// Writes down what a FrameReader hands on.
class Recorder final : public FrameReceiver {
 public:
  struct Frame {
    FrameHeader header;
    std::string meta;
    std::string payload;
    bool ended = false;
  };
  bool ReadyForFrame(const FrameHeader&) override { return ready; }
  absl::Status OnFrame(const FrameHeader& header, std::string_view meta) override {
    frames.push_back({header, std::string(meta), "", false});
    target.assign(header.payload_bytes, '\0');
    landed = 0;
    return absl::OkStatus();
  }
  Take PayloadBuffers(size_t max_bytes, size_t max_pieces, std::vector<iovec>* out,
                      absl::Status*) override {
    if (take != Take::kBuffers) return take;
    size_t at = landed;
    for (size_t i = 0; i < max_pieces && max_bytes > 0; ++i) {
      const size_t n = std::min({piece, max_bytes, target.size() - at});
      if (n == 0) break;
      out->push_back({target.data() + at, n});
      at += n;
      max_bytes -= n;
    }
    return take;
  }
  absl::Status PayloadLanded(size_t bytes) override {
    landed += bytes;
    return absl::OkStatus();
  }
  absl::Status OnFrameEnd() override {
    frames.back().payload = target.substr(0, landed);
    frames.back().ended = true;
    return absl::OkStatus();
  }

  std::vector<Frame> frames;
  std::string target;
  size_t landed = 0;
  size_t piece = 1000;
  bool ready = true;
  Take take = Take::kBuffers;
};

// Offers `bytes` to the reader in reads of at most `read` bytes. Returns how many it took.
size_t Feed(FrameReader* reader, std::string_view bytes, size_t read, absl::Status* status) {
  size_t fed = 0;
  while (fed < bytes.size()) {
    std::vector<iovec> pieces;
    *status = reader->NextRead(&pieces);
    if (!status->ok() || pieces.empty()) return fed;
    size_t got = 0;
    for (const iovec& piece : pieces) {
      const size_t n = std::min({piece.iov_len, read - got, bytes.size() - fed - got});
      std::memcpy(piece.iov_base, bytes.data() + fed + got, n);
      got += n;
    }
    fed += got;
    *status = reader->Advance(got);
    if (!status->ok()) return fed;
  }
  return fed;
}

std::string FrameBytes(FrameType type, uint64_t id, std::string_view meta,
                       std::string_view payload) {
  FrameHeader header;
  header.type = type;
  header.request_id = id;
  header.meta_bytes = static_cast<uint32_t>(meta.size());
  header.meta_crc = Crc32c(meta.data(), meta.size());
  header.payload_bytes = payload.size();
  std::string bytes(kFrameHeaderBytes, '\0');
  EncodeFrameHeader(header, reinterpret_cast<uint8_t*>(bytes.data()));
  return bytes.append(meta).append(payload);
}

std::unique_ptr<OutItem> Item(FrameType type, std::string meta, uint64_t payload = 0,
                              bool in_frame = false) {
  auto item = std::make_unique<OutItem>();
  item->type = type;
  item->meta = std::move(meta);
  item->payload_in_frame = in_frame;
  if (payload > 0) item->source = std::make_unique<PatternSource>(Pattern(1, payload), 10'000);
  return item;
}

// Everything the queue has, in writes of at most `write` bytes.
std::string Drain(SendQueue* queue, size_t write, std::vector<std::unique_ptr<OutItem>>* finished) {
  std::string bytes;
  while (!queue->empty()) {
    size_t left = write;
    for (const iovec& piece : queue->Prepare(256 << 10)) {
      const size_t n = std::min(left, piece.iov_len);
      bytes.append(static_cast<const char*>(piece.iov_base), n);
      left -= n;
    }
    queue->Consume(write - left, finished);
  }
  return bytes;
}

constexpr FrameReader::Options kReader{.max_meta_bytes = 1 << 20, .max_payload_bytes = 1 << 30};

// --- FrameReader ---

TEST(FrameReaderTest, TakesFramesWhateverTheCuts) {
  const std::string bytes =
      FrameBytes(FrameType::kGet, 1, "one", "") +
      FrameBytes(FrameType::kPut, 2, std::string(50'000, 'm'), Pattern(4, 30'000)) +
      FrameBytes(FrameType::kData, 2, "", Pattern(5, 5)) + FrameBytes(FrameType::kPing, 3, "", "");
  for (const size_t read : {size_t{1}, size_t{7}, size_t{33}, size_t{4'096}, size_t{1} << 20}) {
    Recorder recorder;
    FrameReader reader(kReader, &recorder);
    absl::Status status;
    EXPECT_EQ(Feed(&reader, bytes, read, &status), bytes.size());
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(recorder.frames.size(), 4u) << read;
    EXPECT_EQ(recorder.frames[0].meta, "one");
    EXPECT_EQ(recorder.frames[1].meta, std::string(50'000, 'm'));
    EXPECT_EQ(recorder.frames[1].payload, Pattern(4, 30'000));
    EXPECT_EQ(recorder.frames[2].payload, Pattern(5, 5));
    EXPECT_EQ(recorder.frames[3].header.request_id, 3u);
    for (const auto& frame : recorder.frames) EXPECT_TRUE(frame.ended);
    EXPECT_FALSE(reader.mid_frame());
  }
}

TEST(FrameReaderTest, ReadsPayloadIntoTheReceiversBuffersWithTheNextHeadersBehind) {
  Recorder recorder;
  recorder.piece = 100'000;
  FrameReader reader(kReader, &recorder);
  absl::Status status;
  Feed(&reader, FrameBytes(FrameType::kPut, 1, "m", Pattern(1, 100'000)).substr(0, 33), 1 << 20,
       &status);
  std::vector<iovec> pieces;
  ASSERT_TRUE(reader.NextRead(&pieces).ok());
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].iov_base, recorder.target.data());
  EXPECT_EQ(pieces[0].iov_len, 100'000u);
  EXPECT_EQ(pieces[1].iov_len, kReader.head_bytes);
}

TEST(FrameReaderTest, WrongChecksumEndsIt) {
  std::string bytes = FrameBytes(FrameType::kGet, 1, "meta", "");
  bytes.back() ^= 1;
  Recorder recorder;
  FrameReader reader(kReader, &recorder);
  absl::Status status;
  Feed(&reader, bytes, 1 << 20, &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(recorder.frames.empty());
}

TEST(FrameReaderTest, LimitsAreCheckedBeforeTheMetaHasCome) {
  FrameReader::Options options = kReader;
  options.max_meta_bytes = 10;
  options.max_payload_bytes = 10;
  for (const auto& bytes : {FrameBytes(FrameType::kGet, 1, std::string(11, 'x'), ""),
                            FrameBytes(FrameType::kGet, 1, "", std::string(11, 'x'))}) {
    Recorder recorder;
    FrameReader reader(options, &recorder);
    absl::Status status;
    Feed(&reader, bytes.substr(0, kFrameHeaderBytes), 1 << 20, &status);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(FrameReaderTest, AnnouncedMetaTakesNoMemoryBeforeItComes) {
  Recorder recorder;
  FrameReader reader(kReader, &recorder);
  absl::Status status;
  const std::string bytes = FrameBytes(FrameType::kGet, 1, std::string(1 << 20, 'x'), "");
  Feed(&reader, bytes.substr(0, 100), 1 << 20, &status);
  std::vector<iovec> pieces;
  ASSERT_TRUE(reader.NextRead(&pieces).ok());
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_LE(pieces[0].iov_len, kReader.head_bytes);
}

TEST(FrameReaderTest, PausesForAReceiverThatIsNotReady) {
  Recorder recorder;
  recorder.take = FrameReceiver::Take::kPause;
  FrameReader reader(kReader, &recorder);
  absl::Status status;
  const std::string bytes =
      FrameBytes(FrameType::kPut, 1, "m", "payload") + FrameBytes(FrameType::kPing, 2, "", "");
  Feed(&reader, bytes, 1 << 20, &status);
  EXPECT_TRUE(reader.paused());
  EXPECT_EQ(recorder.frames.size(), 1u);
  recorder.take = FrameReceiver::Take::kBuffers;
  recorder.ready = false;
  ASSERT_TRUE(reader.Resume().ok());
  EXPECT_TRUE(reader.paused());
  EXPECT_EQ(recorder.frames[0].payload, "payload");
  recorder.ready = true;
  ASSERT_TRUE(reader.Resume().ok());
  EXPECT_FALSE(reader.paused());
  EXPECT_EQ(recorder.frames.size(), 2u);
}

TEST(FrameReaderTest, DiscardsWhatNobodyWants) {
  Recorder recorder;
  recorder.take = FrameReceiver::Take::kDiscard;
  FrameReader reader(kReader, &recorder);
  absl::Status status;
  const std::string bytes = FrameBytes(FrameType::kPut, 1, "m", std::string(1 << 20, 'x')) +
                            FrameBytes(FrameType::kPing, 2, "", "");
  EXPECT_EQ(Feed(&reader, bytes, 100'000, &status), bytes.size());
  ASSERT_EQ(recorder.frames.size(), 2u);
  EXPECT_EQ(recorder.frames[1].header.request_id, 2u);
}

// A device that fills memory: its records are "PLAC" and a number of bytes.
class TestCarrier final : public PlacingCarrier {
 public:
  static std::string Record(uint64_t bytes) {
    std::string record(kRecordBytes, '\0');
    std::memcpy(record.data(), "PLAC", 4);
    std::memcpy(record.data() + 8, &bytes, sizeof(bytes));
    return record;
  }
  bool IsRecord(const uint8_t* bytes) const override { return std::memcmp(bytes, "PLAC", 4) == 0; }
  bool IsRaw(const uint8_t*) const override { return false; }
  absl::StatusOr<Announced> OnRecord(const uint8_t* record) override {
    uint64_t bytes = 0;
    std::memcpy(&bytes, record + 8, sizeof(bytes));
    unplaced += bytes;
    return Announced{bytes, false};
  }
  uint64_t unplaced_bytes() const override { return unplaced; }
  uint64_t placed_bytes() const override { return placed; }
  absl::StatusOr<uint64_t> Place(absl::Span<const iovec> to) override {
    uint64_t sum = 0;
    for (const iovec& piece : to) sum += piece.iov_len;
    unplaced -= sum;
    placed += sum;
    return sum;
  }
  bool can_place_again() const override { return false; }
  void PassOver(uint64_t bytes) override {
    unplaced -= bytes;
    placed += bytes;
  }
  Arrived arrived() const override { return {here, true}; }
  void Take(uint64_t bytes) override {
    here -= bytes;
    placed -= bytes;
  }

  uint64_t unplaced = 0;
  uint64_t placed = 0;
  uint64_t here = 0;  // of what is placed, in its place
};

TEST(FrameReaderTest, ReceiverMayPauseWhilePayloadIsOnItsWay) {
  Recorder recorder;
  TestCarrier carrier;
  FrameReader reader(kReader, &recorder);
  reader.SetPlacingCarrier(&carrier);
  absl::Status status;
  const std::string head =
      FrameBytes(FrameType::kPut, 1, "m", std::string(2'000, 'x')).substr(0, kFrameHeaderBytes + 1);
  Feed(&reader, head + TestCarrier::Record(1'000), 1 << 20, &status);
  ASSERT_EQ(carrier.placed, 1'000u);
  // The receiver wants to be asked later; what it was promised has not come.
  recorder.take = FrameReceiver::Take::kPause;
  Feed(&reader, TestCarrier::Record(1'000), 1 << 20, &status);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(carrier.unplaced, 1'000u);
  carrier.here = 1'000;
  ASSERT_TRUE(reader.has_pieces());
  ASSERT_TRUE(reader.Continue().ok());
  EXPECT_EQ(recorder.landed, 1'000u);
  EXPECT_TRUE(reader.paused());
  recorder.take = FrameReceiver::Take::kBuffers;
  ASSERT_TRUE(reader.Resume().ok());
  EXPECT_EQ(carrier.placed, 1'000u);
  carrier.here = 1'000;
  ASSERT_TRUE(reader.Continue().ok());
  ASSERT_EQ(recorder.frames.size(), 1u);
  EXPECT_TRUE(recorder.frames[0].ended);
  EXPECT_EQ(recorder.landed, 2'000u);
}

// --- SendQueue ---

TEST(SendQueueTest, StreamsTakeTurnsAndKeepTheirOwnOrder) {
  SendQueue queue;
  OutStream a(1);
  OutStream b(2);
  queue.Push(&a, Item(FrameType::kGetHead, "head", 2 * kDataFrameBytes + 10));
  queue.Push(&a, Item(FrameType::kGetDone, "done"));
  queue.Push(&b, Item(FrameType::kPong, "small"));
  std::vector<std::unique_ptr<OutItem>> finished;
  const std::string bytes = Drain(&queue, 100'000, &finished);
  Recorder recorder;
  FrameReader reader(kReader, &recorder);
  absl::Status status;
  ASSERT_EQ(Feed(&reader, bytes, 50'000, &status), bytes.size()) << status;
  std::vector<std::pair<uint64_t, FrameType>> order;
  std::string stream;
  for (const auto& frame : recorder.frames) {
    order.emplace_back(frame.header.request_id, frame.header.type);
    if (frame.header.type == FrameType::kData) stream += frame.payload;
  }
  EXPECT_EQ(order, (std::vector<std::pair<uint64_t, FrameType>>{{1, FrameType::kGetHead},
                                                                {2, FrameType::kPong},
                                                                {1, FrameType::kData},
                                                                {1, FrameType::kData},
                                                                {1, FrameType::kData},
                                                                {1, FrameType::kGetDone}}));
  EXPECT_TRUE(stream == Pattern(1, 2 * kDataFrameBytes + 10));
  ASSERT_EQ(finished.size(), 3u);
  EXPECT_EQ(finished[0]->type, FrameType::kPong);
  EXPECT_EQ(queue.queued_meta_bytes(), 0u);
  EXPECT_EQ(a.in_flight, 0);
}

TEST(SendQueueTest, SmallFramesShareOneWrite) {
  SendQueue queue;
  OutStream a(1);
  OutStream b(2);
  queue.Push(&a, Item(FrameType::kGetHead, "head", 5'000, /*in_frame=*/true));
  queue.Push(&b, Item(FrameType::kPong, "small"));
  size_t bytes = 0;
  for (const iovec& piece : queue.Prepare(256 << 10)) bytes += piece.iov_len;
  EXPECT_EQ(bytes, 2 * kFrameHeaderBytes + 4 + 5'000 + 5);
}

TEST(SendQueueTest, AbortDropsWhatHasNotBegun) {
  SendQueue queue;
  OutStream a(1);
  queue.Push(&a, Item(FrameType::kGetHead, "head", 100));
  queue.Push(&a, Item(FrameType::kGetDone, "done"));
  std::vector<std::unique_ptr<OutItem>> dropped;
  EXPECT_FALSE(queue.Abort(&a, &dropped));
  EXPECT_EQ(dropped.size(), 2u);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.queued_meta_bytes(), 0u);
}

TEST(SendQueueTest, AbortFinishesTheFrameUnderWay) {
  SendQueue queue;
  OutStream a(1);
  queue.Push(&a, Item(FrameType::kGetHead, "head", 5 * kDataFrameBytes));
  queue.Push(&a, Item(FrameType::kGetDone, "done"));
  std::string bytes;
  std::vector<std::unique_ptr<OutItem>> finished;
  // Into the first Data frame.
  for (const iovec& piece : queue.Prepare(256 << 10)) {
    bytes.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  }
  queue.Consume(bytes.size(), &finished);
  std::vector<std::unique_ptr<OutItem>> dropped;
  EXPECT_TRUE(queue.Abort(&a, &dropped));
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0]->type, FrameType::kGetDone);
  queue.PushFirst(&a, Item(FrameType::kCancelDone, ""));
  bytes += Drain(&queue, 1 << 20, &finished);
  Recorder recorder;
  FrameReader reader(kReader, &recorder);
  absl::Status status;
  ASSERT_EQ(Feed(&reader, bytes, 1 << 20, &status), bytes.size()) << status;
  ASSERT_EQ(recorder.frames.size(), 3u);
  EXPECT_EQ(recorder.frames[1].payload.size(), kDataFrameBytes);
  EXPECT_EQ(recorder.frames[2].header.type, FrameType::kCancelDone);
  EXPECT_EQ(a.in_flight, 0);
  EXPECT_EQ(finished.size(), 2u);
}

TEST(SendQueueTest, AbortBetweenFramesWaitsOnlyForUnwrittenBytes) {
  SendQueue queue;
  OutStream a(1);
  queue.Push(&a, Item(FrameType::kGetHead, "head", kDataFrameBytes + 5));
  std::string bytes;
  std::vector<std::unique_ptr<OutItem>> finished;
  // Up to the end of the first Data frame: header, meta, header, payload.
  const size_t first = kFrameHeaderBytes + 4 + kFrameHeaderBytes + kDataFrameBytes;
  while (bytes.size() < first) {
    const auto pieces = queue.Prepare(std::min<size_t>(256 << 10, first - bytes.size()));
    size_t n = 0;
    for (const iovec& piece : pieces) n += piece.iov_len;
    bytes.append(n, 'x');
    queue.Consume(n, &finished);
  }
  EXPECT_EQ(a.in_flight, 1);
  std::vector<std::unique_ptr<OutItem>> dropped;
  EXPECT_FALSE(queue.Abort(&a, &dropped));
  EXPECT_EQ(dropped.size(), 1u);
  EXPECT_EQ(a.in_flight, 0);
}

TEST(SendQueueTest, ClearGivesEverythingBack) {
  SendQueue queue;
  OutStream a(1);
  OutStream b(2);
  queue.Push(&a, Item(FrameType::kGetHead, "head", 5 * kDataFrameBytes));
  queue.Push(&a, Item(FrameType::kGetDone, "done"));
  queue.Push(&b, Item(FrameType::kPong, "x"));
  queue.Prepare(256 << 10);
  std::vector<std::unique_ptr<OutItem>> dropped;
  queue.Clear(&dropped);
  EXPECT_EQ(dropped.size(), 3u);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(a.in_flight, 0);
  EXPECT_EQ(b.in_flight, 0);
  EXPECT_TRUE(a.begun);
}

}  // namespace
}  // namespace cistern::transport
