#include "base/config_schema.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/config.h"
#include "base/status.h"
#include "base/string_view.h"
#include "proto/config.pb.h"

namespace cistern {
namespace internal {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const config::FieldRules& RulesOf(const FieldDescriptor* field) {
  return field->options().GetExtension(config::rules);
}

// Removes `suffix` from the end of `*name` if it is there.
bool StripSuffix(std::string* name, std::string_view suffix) {
  if (name->size() <= suffix.size() ||
      name->compare(name->size() - suffix.size(), suffix.size(), suffix) != 0) {
    return false;
  }
  name->resize(name->size() - suffix.size());
  return true;
}

bool HasUnit(const FieldDescriptor* field, std::string_view suffix) {
  std::string name = field->name();
  return field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64 && StripSuffix(&name, suffix);
}

// Levenshtein's distance.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string DidYouMean(std::string_view key) {
  return absl::StrCat("; did you mean \"", AbslView(key), "\"?");
}

// The full name of the first key called `leaf` at or below `table`; "" if there is none.
std::string FindLeaf(const Descriptor* table, const std::string& prefix, std::string_view leaf) {
  for (int i = 0; i < table->field_count(); ++i) {
    const FieldDescriptor* field = table->field(i);
    const std::string key = KeyOf(field);
    if (key == leaf) return prefix + key;
    if (!IsTable(field) && !IsArrayOfTables(field)) continue;
    const std::string inner = IsTable(field) ? "." : "[].";
    if (std::string found = FindLeaf(field->message_type(), prefix + key + inner, leaf);
        !found.empty()) {
      return found;
    }
  }
  return "";
}

std::string RangeText(const config::FieldRules& rules) {
  if (rules.min().empty()) return absl::StrCat("at most ", rules.max());
  if (rules.max().empty()) return absl::StrCat("at least ", rules.min());
  return absl::StrCat(rules.min(), " to ", rules.max());
}

void DescribeTable(const Descriptor* table, const std::string& prefix,
                   std::vector<std::pair<std::string, std::string>>* lines) {
  for (int i = 0; i < table->field_count(); ++i) {
    const FieldDescriptor* field = table->field(i);
    const std::string key = prefix + KeyOf(field);
    if (IsTable(field) || IsArrayOfTables(field)) {
      DescribeTable(field->message_type(), key + (IsTable(field) ? "." : "[]."), lines);
      continue;
    }
    const config::FieldRules& rules = RulesOf(field);
    std::string text(AbslView(KindText(KindOf(field))));
    if (!rules.choices().empty()) {
      text = absl::StrCat("one of ", absl::StrJoin(absl::StrSplit(rules.choices(), ','), ", "));
    }
    if (!rules.min().empty() || !rules.max().empty())
      absl::StrAppend(&text, ", ", RangeText(rules));
    if (rules.required()) {
      absl::StrAppend(&text, ", required");
    } else if (!rules.default_().empty()) {
      absl::StrAppend(&text, ", default ", rules.default_());
    }
    if (!rules.help().empty()) absl::StrAppend(&text, ": ", rules.help());
    lines->emplace_back(key, std::move(text));
  }
}

}  // namespace

ConfigKind KindOf(const FieldDescriptor* field) {
  CISTERN_CHECK(!field->is_repeated());
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT64:
      if (HasUnit(field, "_bytes")) return ConfigKind::kSize;
      if (HasUnit(field, "_ms")) return ConfigKind::kMillis;
      return ConfigKind::kUnsigned;
    case FieldDescriptor::CPPTYPE_UINT32:
      return ConfigKind::kUnsigned;
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
      return ConfigKind::kSigned;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return ConfigKind::kFloat;
    case FieldDescriptor::CPPTYPE_BOOL:
      return ConfigKind::kBool;
    case FieldDescriptor::CPPTYPE_STRING:
      return ConfigKind::kString;
    default:
      CISTERN_CHECK(!"a kind of field that the configuration does not know");
      std::abort();
  }
}

std::string_view KindText(ConfigKind kind) {
  switch (kind) {
    case ConfigKind::kSize:
      return "a size like \"64GiB\"";
    case ConfigKind::kMillis:
      return "a time like \"30s\"";
    case ConfigKind::kUnsigned:
      return "a whole number";
    case ConfigKind::kSigned:
      return "a whole number, maybe negative";
    case ConfigKind::kFloat:
      return "a number";
    case ConfigKind::kBool:
      return "true or false";
    case ConfigKind::kString:
      return "a string";
  }
  return "";
}

std::string KeyOf(const FieldDescriptor* field) {
  std::string name = field->name();
  if (HasUnit(field, "_bytes")) StripSuffix(&name, "_bytes");
  if (HasUnit(field, "_ms")) StripSuffix(&name, "_ms");
  return name;
}

bool IsTable(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_repeated();
}

bool IsArrayOfTables(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && field->is_repeated();
}

bool IsRequired(const FieldDescriptor* field) { return RulesOf(field).required(); }

absl::StatusOr<ConfigScalar> ParseScalar(const FieldDescriptor* field, std::string_view text) {
  const ConfigKind kind = KindOf(field);
  const auto wrong = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", AbslView(text), "\" is not ", AbslView(KindText(kind))));
  };
  switch (kind) {
    case ConfigKind::kSize: {
      CISTERN_ASSIGN_OR_RETURN(const uint64_t bytes, ParseSize(text));
      return ConfigScalar(bytes);
    }
    case ConfigKind::kMillis: {
      CISTERN_ASSIGN_OR_RETURN(const uint64_t ms, ParseMillis(text));
      return ConfigScalar(ms);
    }
    case ConfigKind::kUnsigned: {
      uint64_t value;
      if (!absl::SimpleAtoi(AbslView(text), &value)) return wrong();
      return ConfigScalar(value);
    }
    case ConfigKind::kSigned: {
      int64_t value;
      if (!absl::SimpleAtoi(AbslView(text), &value)) return wrong();
      return ConfigScalar(value);
    }
    case ConfigKind::kFloat: {
      double value;
      if (!absl::SimpleAtod(AbslView(text), &value)) return wrong();
      return ConfigScalar(value);
    }
    case ConfigKind::kBool:
      if (text != "true" && text != "false") return wrong();
      return ConfigScalar(text == "true");
    case ConfigKind::kString:
      return ConfigScalar(std::string(text));
  }
  return wrong();
}

absl::StatusOr<ConfigScalar> DefaultOf(const FieldDescriptor* field) {
  const std::string& text = RulesOf(field).default_();
  if (!text.empty()) return ParseScalar(field, text);
  switch (KindOf(field)) {
    case ConfigKind::kBool:
      return ConfigScalar(false);
    case ConfigKind::kString:
      return ConfigScalar(std::string());
    default:
      return ParseScalar(field, "0");
  }
}

absl::Status CheckRules(const FieldDescriptor* field, const ConfigScalar& value) {
  const config::FieldRules& rules = RulesOf(field);
  const auto out_of = [&](absl::string_view range) {
    return absl::InvalidArgumentError(
        absl::StrCat(FormatScalar(field, value), " is out of range: ", range));
  };
  if (const double* number = std::get_if<double>(&value); number && !std::isfinite(*number)) {
    return out_of("a finite number");
  }
  if (!rules.min().empty()) {
    CISTERN_ASSIGN_OR_RETURN(const ConfigScalar min, ParseScalar(field, rules.min()));
    if (value < min) return out_of(RangeText(rules));
  }
  if (!rules.max().empty()) {
    CISTERN_ASSIGN_OR_RETURN(const ConfigScalar max, ParseScalar(field, rules.max()));
    if (max < value) return out_of(RangeText(rules));
  }
  // What the field itself can hold, where the rules leave more.
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32 &&
      std::get<uint64_t>(value) > std::numeric_limits<uint32_t>::max()) {
    return out_of("at most 4294967295");
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32 &&
      (std::get<int64_t>(value) > std::numeric_limits<int32_t>::max() ||
       std::get<int64_t>(value) < std::numeric_limits<int32_t>::min())) {
    return out_of("-2147483648 to 2147483647");
  }
  if (const std::string* text = std::get_if<std::string>(&value);
      rules.required() && text != nullptr && text->empty()) {
    return absl::InvalidArgumentError("must not be empty");
  }
  if (!rules.choices().empty()) {
    const std::vector<std::string> choices = absl::StrSplit(rules.choices(), ',');
    if (std::find(choices.begin(), choices.end(), std::get<std::string>(value)) == choices.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", std::get<std::string>(value), "\" is not one of ", absl::StrJoin(choices, ", ")));
    }
  }
  return absl::OkStatus();
}

std::string FormatScalar(const FieldDescriptor* field, const ConfigScalar& value) {
  switch (KindOf(field)) {
    case ConfigKind::kSize: {
      const uint64_t bytes = std::get<uint64_t>(value);
      std::string text = FormatSize(bytes);
      const absl::StatusOr<uint64_t> back = ParseSize(text);
      return back.ok() && *back == bytes ? text : absl::StrCat(bytes);
    }
    case ConfigKind::kMillis: {
      // Longer than Abseil's hours reach: as a number of milliseconds.
      const uint64_t ms = std::get<uint64_t>(value);
      if (ms > uint64_t{1} << 50) return absl::StrCat(ms);
      return absl::FormatDuration(absl::Milliseconds(static_cast<int64_t>(ms)));
    }
    case ConfigKind::kUnsigned:
      return absl::StrCat(std::get<uint64_t>(value));
    case ConfigKind::kSigned:
      return absl::StrCat(std::get<int64_t>(value));
    case ConfigKind::kFloat:
      return absl::StrCat(std::get<double>(value));
    case ConfigKind::kBool:
      return std::get<bool>(value) ? "true" : "false";
    case ConfigKind::kString:
      return std::get<std::string>(value);
  }
  return "";
}

void SetField(const FieldDescriptor* field, const ConfigScalar& value, Message* message) {
  const google::protobuf::Reflection* reflection = message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->SetUInt64(message, field, std::get<uint64_t>(value));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->SetUInt32(message, field,
                                   static_cast<uint32_t>(std::get<uint64_t>(value)));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->SetInt64(message, field, std::get<int64_t>(value));
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->SetInt32(message, field, static_cast<int32_t>(std::get<int64_t>(value)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->SetDouble(message, field, std::get<double>(value));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, std::get<bool>(value));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->SetString(message, field, std::get<std::string>(value));
    default:
      CISTERN_CHECK(!"KindOf let it through");
  }
}

std::string Suggest(const Descriptor* root, const Descriptor* table, std::string_view prefix,
                    std::string_view key) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, key.size() / 3) + 1;
  for (int i = 0; i < table->field_count(); ++i) {
    const FieldDescriptor* field = table->field(i);
    const std::string known = KeyOf(field);
    // Someone read the schema and wrote the unit too: lease_ms.
    if (field->name() == key) return DidYouMean(std::string(prefix) + known);
    const size_t distance = key.size() > 100 ? key.size() : EditDistance(key, known);
    if (distance < best_distance) {
      best_distance = distance;
      best = known;
    }
  }
  if (!best.empty()) return DidYouMean(std::string(prefix) + best);
  const std::string elsewhere = FindLeaf(root, "", key);
  return elsewhere.empty() ? "" : DidYouMean(elsewhere);
}

}  // namespace internal

std::string DescribeConfig(const google::protobuf::Descriptor* descriptor) {
  std::vector<std::pair<std::string, std::string>> lines;
  internal::DescribeTable(descriptor, "", &lines);
  size_t width = 0;
  for (const auto& [key, text] : lines) width = std::max(width, key.size());
  std::string out;
  for (const auto& [key, text] : lines) {
    absl::StrAppend(&out, "  ", key, std::string(width - key.size() + 2, ' '), text, "\n");
  }
  return out;
}

}  // namespace cistern
