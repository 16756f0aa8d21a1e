// What the fields of proto/config.proto allow: private to base/config.
#ifndef CISTERN_BASE_CONFIG_SCHEMA_H_
#define CISTERN_BASE_CONFIG_SCHEMA_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

namespace cistern::internal {

enum class ConfigKind { kSize, kMillis, kUnsigned, kSigned, kFloat, kBool, kString };

// One value: uint64_t for sizes (bytes), times (ms) and unsigned numbers.
using ConfigScalar = std::variant<uint64_t, int64_t, double, bool, std::string>;

// The kind of a scalar field. A field that no kind fits is a mistake in the schema: CHECK.
ConfigKind KindOf(const google::protobuf::FieldDescriptor* field);
// "a size like \"64GiB\"": for messages.
std::string_view KindText(ConfigKind kind);

// The key of a field in the file: its name without the unit.
std::string KeyOf(const google::protobuf::FieldDescriptor* field);
bool IsTable(const google::protobuf::FieldDescriptor* field);          // [key]
bool IsArrayOfTables(const google::protobuf::FieldDescriptor* field);  // [[key]]
bool IsRequired(const google::protobuf::FieldDescriptor* field);

// From text, as a flag or a default has it.
absl::StatusOr<ConfigScalar> ParseScalar(const google::protobuf::FieldDescriptor* field,
                                         std::string_view text);
// The value when nobody gives one.
absl::StatusOr<ConfigScalar> DefaultOf(const google::protobuf::FieldDescriptor* field);
// InvalidArgument unless the value is in the field's range and among its choices.
absl::Status CheckRules(const google::protobuf::FieldDescriptor* field, const ConfigScalar& value);
// As one would write it; strings without quotes.
std::string FormatScalar(const google::protobuf::FieldDescriptor* field, const ConfigScalar& value);
void SetField(const google::protobuf::FieldDescriptor* field, const ConfigScalar& value,
              google::protobuf::Message* message);

// "; did you mean \"lease\"?" for a key of `table` (whose keys start with `prefix`) or of any table
// under `root`; "" when none is near.
std::string Suggest(const google::protobuf::Descriptor* root,
                    const google::protobuf::Descriptor* table, std::string_view prefix,
                    std::string_view key);

}  // namespace cistern::internal

#endif  // CISTERN_BASE_CONFIG_SCHEMA_H_
