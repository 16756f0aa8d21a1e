#include "store/namespace_record.h"

#include <cstring>
#include <string>

#include "base/key_hash.h"
#include "base/test_util.h"
#include "gtest/gtest.h"

namespace cistern::store {
namespace {

NamespaceRecord Make(const std::string& tenant, const std::string& name,
                     const std::string& fingerprint) {
  NamespaceRecord record;
  record.tenant = tenant;
  record.name = name;
  record.fingerprint = fingerprint;
  record.id = DeriveNamespaceId(tenant, name, fingerprint);
  return record;
}

TEST(NamespaceRecordTest, SlotGivesBackEveryField) {
  NamespaceRecord record =
      Make(std::string(256, 't'), std::string(256, 'n'), std::string(4096, '\xFF'));
  record.valid_from = Version(77);
  record.options.set_verify(wire::VERIFY_SAMPLED);
  record.options.set_ttl_ms(123'456);
  record.options.set_part_bytes(65'536);
  record.options.set_digest(wire::DIGEST_PRODUCER);
  record.options.set_digest_set(true);
  record.options.set_mutable_chunks(true);
  record.options.set_keep_keys(true);
  NamespaceSlot slot{};
  WriteNamespaceSlot(record, &slot);
  const auto read = ReadNamespaceSlot(slot, nullptr);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->id, record.id);
  EXPECT_EQ(read->tenant, record.tenant);
  EXPECT_EQ(read->name, record.name);
  EXPECT_EQ(read->fingerprint, record.fingerprint);
  EXPECT_EQ(read->valid_from, Version(77));
  EXPECT_EQ(read->options.SerializeAsString(), record.options.SerializeAsString());
}

TEST(NamespaceRecordTest, FieldsLongerThanTheirPlaceAreRefused) {
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(CheckNamespaceRecord(Make("", "", "f")), StatusIs(code));
  EXPECT_THAT(CheckNamespaceRecord(Make("", std::string(257, 'n'), "f")), StatusIs(code));
  EXPECT_THAT(CheckNamespaceRecord(Make(std::string(257, 't'), "n", "f")), StatusIs(code));
  EXPECT_THAT(CheckNamespaceRecord(Make("", "n", std::string(4097, 'f'))), StatusIs(code));
  EXPECT_OK(CheckNamespaceRecord(Make("", "n", "")));
}

// A slot that holds them would be taken for damaged after a restart, and its chunks with it.
TEST(NamespaceRecordTest, OptionsThatASlotCannotHoldAreRefused) {
  const auto code = absl::StatusCode::kInvalidArgument;
  NamespaceRecord record = Make("", "n", "f");
  record.options.set_part_bytes(12'288);  // no power of two
  EXPECT_THAT(CheckNamespaceRecord(record), StatusIs(code));
  record.options.set_part_bytes(2'048);
  EXPECT_THAT(CheckNamespaceRecord(record), StatusIs(code));
  record.options.set_part_bytes(4'096);
  EXPECT_OK(CheckNamespaceRecord(record));
  record.options.set_verify(static_cast<wire::VerifyPolicy>(300));
  EXPECT_THAT(CheckNamespaceRecord(record), StatusIs(code));
  record.options.set_verify(wire::VERIFY_ALWAYS);
  record.options.set_digest(static_cast<wire::DigestKind>(3));
  EXPECT_THAT(CheckNamespaceRecord(record), StatusIs(code));
}

TEST(NamespaceRecordTest, KillWhileASlotIsWrittenLeavesItFree) {
  NamespaceSlot old{};
  WriteNamespaceSlot(Make("", "old", "fp"), &old);
  NamespaceSlot full = old;
  WriteNamespaceSlot(Make("", "new", "other fp"), &full);
  for (size_t stored = 4; stored < sizeof(NamespaceSlot); stored += 13) {
    NamespaceSlot torn = old;
    std::memcpy(reinterpret_cast<char*>(&torn) + 4, reinterpret_cast<const char*>(&full) + 4,
                stored - 4);
    torn.magic = 0;
    bool damaged = true;
    EXPECT_FALSE(ReadNamespaceSlot(torn, &damaged).has_value());
    EXPECT_FALSE(damaged);
  }
}

TEST(NamespaceRecordTest, DamageIsToldFromFree) {
  NamespaceSlot slot{};
  WriteNamespaceSlot(Make("", "n", "fp"), &slot);
  slot.fingerprint[0] ^= 1;
  bool damaged = false;
  EXPECT_FALSE(ReadNamespaceSlot(slot, &damaged).has_value());
  EXPECT_TRUE(damaged);
  ClearNamespaceSlot(&slot);
  EXPECT_FALSE(ReadNamespaceSlot(slot, &damaged).has_value());
  EXPECT_FALSE(damaged);
}

}  // namespace
}  // namespace cistern::store
