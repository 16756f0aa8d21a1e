#include "tools/ctl/proto_json.h"

#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"

namespace cistern::ctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

Json MessageToJson(const Message& message);

Json TextToJson(const FieldDescriptor& field, const std::string& text) {
  return field.type() == FieldDescriptor::TYPE_BYTES ? absl::BytesToHexString(text) : text;
}

// One value: element `i` of a repeated field, the value itself of another.
Json ValueToJson(const Message& message, const FieldDescriptor& field, int i) {
  const Reflection& r = *message.GetReflection();
  const bool many = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return many ? r.GetRepeatedInt32(message, &field, i) : r.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return many ? r.GetRepeatedInt64(message, &field, i) : r.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return many ? r.GetRepeatedUInt32(message, &field, i) : r.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return many ? r.GetRepeatedUInt64(message, &field, i) : r.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return many ? r.GetRepeatedDouble(message, &field, i) : r.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return many ? r.GetRepeatedFloat(message, &field, i) : r.GetFloat(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return many ? r.GetRepeatedBool(message, &field, i) : r.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return (many ? r.GetRepeatedEnum(message, &field, i) : r.GetEnum(message, &field))->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return TextToJson(
          field, many ? r.GetRepeatedString(message, &field, i) : r.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(many ? r.GetRepeatedMessage(message, &field, i)
                                : r.GetMessage(message, &field));
  }
  return nullptr;
}

// Keys in order, so that the same message is always the same text.
Json MapToJson(const Message& message, const FieldDescriptor& field) {
  const Reflection& r = *message.GetReflection();
  std::map<std::string, Json> sorted;
  for (int i = 0; i < r.FieldSize(message, &field); ++i) {
    const Message& entry = r.GetRepeatedMessage(message, &field, i);
    const Json key = ValueToJson(entry, *field.message_type()->map_key(), 0);
    sorted[key.is_string() ? key.get<std::string>() : key.dump()] =
        ValueToJson(entry, *field.message_type()->map_value(), 0);
  }
  Json out = Json::object();
  for (auto& [key, value] : sorted) out[key] = std::move(value);
  return out;
}

Json MessageToJson(const Message& message) {
  Json out = Json::object();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    // A message that is not there says nothing; one full of zeros would.
    if (field.has_presence() && !message.GetReflection()->HasField(message, &field)) continue;
    Json& value = out[field.name()];
    if (field.is_map()) {
      value = MapToJson(message, field);
    } else if (field.is_repeated()) {
      value = Json::array();
      for (int k = 0; k < message.GetReflection()->FieldSize(message, &field); ++k) {
        value.push_back(ValueToJson(message, field, k));
      }
    } else {
      value = ValueToJson(message, field, 0);
    }
  }
  return out;
}

}  // namespace

std::string ToJson(const Message& message, bool compact, const std::string& only) {
  Json json = MessageToJson(message);
  if (!only.empty()) json = Json{{only, json[only]}};
  // Names come from callers: bytes that are no UTF-8 are replaced, not refused.
  return json.dump(compact ? -1 : 2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace cistern::ctl
