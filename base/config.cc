#include "base/config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/config_schema.h"
#include "base/status.h"
#include "base/string_view.h"

namespace cistern {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using internal::ConfigKind;
using internal::ConfigScalar;

// A configuration is read whole before it is parsed.
constexpr size_t kMaxConfigBytes = 1 << 20;
// Tables in one array of tables: a store has tens of segments at most.
constexpr size_t kMaxTables = 1024;

std::string_view TypeText(toml::node_type type) {
  switch (type) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a number with a fraction";
    case toml::node_type::boolean:
      return "true or false";
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time:
      return "a date or time of day";
    default:
      return "nothing";
  }
}

absl::StatusOr<ConfigScalar> FromNode(const FieldDescriptor* field, const toml::node& node) {
  const ConfigKind kind = internal::KindOf(field);
  const auto wrong = [&] {
    return absl::InvalidArgumentError(absl::StrCat("expected ", AbslView(KindText(kind)), ", got ",
                                                   AbslView(TypeText(node.type()))));
  };
  const auto* integer = node.as_integer();
  const auto* string = node.as_string();
  switch (kind) {
    case ConfigKind::kSize:
    case ConfigKind::kMillis:
      if (string != nullptr) return internal::ParseScalar(field, string->get());
      [[fallthrough]];
    case ConfigKind::kUnsigned:
      if (integer == nullptr) return wrong();
      if (integer->get() < 0) {
        return absl::InvalidArgumentError(absl::StrCat(integer->get(), " is negative"));
      }
      return ConfigScalar(static_cast<uint64_t>(integer->get()));
    case ConfigKind::kSigned:
      if (integer == nullptr) return wrong();
      return ConfigScalar(integer->get());
    case ConfigKind::kFloat:
      if (integer != nullptr) return ConfigScalar(static_cast<double>(integer->get()));
      if (!node.is_floating_point()) return wrong();
      return ConfigScalar(node.as_floating_point()->get());
    case ConfigKind::kBool:
      if (!node.is_boolean()) return wrong();
      return ConfigScalar(node.as_boolean()->get());
    case ConfigKind::kString:
      if (string == nullptr) return wrong();
      return ConfigScalar(string->get());
  }
  return wrong();
}

// Walks the schema and the parsed file side by side. One per LoadConfig.
class Loader {
 public:
  Loader(std::string_view file_name,
         const std::vector<std::pair<std::string, std::string>>& overrides, const Descriptor* root)
      : file_name_(file_name), root_(root) {
    for (const auto& [key, text] : overrides) overrides_[key] = text;  // The last one counts.
  }

  absl::StatusOr<LoadedConfig> Run(const toml::table& file, Message* message) {
    CISTERN_RETURN_IF_ERROR(Walk(file, "", message));
    for (const auto& [key, text] : overrides_) {
      if (used_.count(key) == 0) return UnknownOverride(key);
    }
    return std::move(loaded_);
  }

 private:
  absl::Status At(const toml::source_region& where, const absl::Status& status) const {
    // Tables that nobody wrote have no place: the file's first line stands for them.
    const auto line = std::max<toml::source_index>(1, where.begin.line);
    return Annotate(status, absl::StrCat(file_name_, ":", line));
  }

  absl::Status Walk(const toml::table& table, const std::string& prefix, Message* message) {
    const Descriptor* descriptor = message->GetDescriptor();
    std::set<std::string, std::less<>> known;
    for (int i = 0; i < descriptor->field_count(); ++i) {
      known.insert(internal::KeyOf(descriptor->field(i)));
    }
    for (const auto& [key, node] : table) {
      if (known.find(key.str()) != known.end()) continue;
      return At(key.source(), absl::InvalidArgumentError(absl::StrCat(
                                  "unknown key \"", prefix, AbslView(key.str()), "\"",
                                  internal::Suggest(root_, descriptor, prefix, key.str()))));
    }
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      const std::string key = internal::KeyOf(field);
      const toml::node* node = table.get(key);
      if (internal::IsTable(field)) {
        CISTERN_RETURN_IF_ERROR(LoadTable(field, prefix + key, node, message));
      } else if (internal::IsArrayOfTables(field)) {
        CISTERN_RETURN_IF_ERROR(LoadTables(field, prefix + key, node, message));
      } else {
        CISTERN_RETURN_IF_ERROR(LoadScalar(field, prefix + key, node, table.source(), message));
      }
    }
    return absl::OkStatus();
  }

  absl::Status LoadTable(const FieldDescriptor* field, const std::string& key,
                         const toml::node* node, Message* message) {
    if (node != nullptr && !node->is_table()) {
      return At(node->source(),
                absl::InvalidArgumentError(absl::StrCat(key, ": expected a table [", key, "], got ",
                                                        AbslView(TypeText(node->type())))));
    }
    static const toml::table kEmpty;
    return Walk(node == nullptr ? kEmpty : *node->as_table(), key + ".",
                message->GetReflection()->MutableMessage(message, field));
  }

  absl::Status LoadTables(const FieldDescriptor* field, const std::string& key,
                          const toml::node* node, Message* message) {
    static const toml::array kNone;
    const toml::array* tables = node == nullptr ? &kNone : node->as_array();
    if (tables == nullptr ||
        !std::all_of(tables->begin(), tables->end(), [](const auto& n) { return n.is_table(); })) {
      return At(node->source(), absl::InvalidArgumentError(
                                    absl::StrCat(key, ": expected tables headed [[", key, "]]")));
    }
    if (tables->size() > kMaxTables) {
      return At(node->source(), absl::InvalidArgumentError(
                                    absl::StrCat(key, ": more than ", kMaxTables, " tables")));
    }
    // Flags may also add tables: segment[0].size=64MiB without a file.
    static const toml::table kEmpty;
    for (size_t i = 0; i < kMaxTables; ++i) {
      const std::string prefix = absl::StrCat(key, "[", i, "].");
      if (i >= tables->size() && !HasOverrideUnder(prefix)) break;
      const toml::table& table = i < tables->size() ? *tables->get(i)->as_table() : kEmpty;
      CISTERN_RETURN_IF_ERROR(
          Walk(table, prefix, message->GetReflection()->AddMessage(message, field)));
    }
    return absl::OkStatus();
  }

  absl::Status LoadScalar(const FieldDescriptor* field, const std::string& key,
                          const toml::node* node, const toml::source_region& table,
                          Message* message) {
    ConfigScalar value;
    std::string source = "default";
    // A wrong value in the file is refused even where a flag covers it: it would surface later, on
    // a day when nobody expects it.
    if (node != nullptr) {
      const absl::StatusOr<ConfigScalar> parsed = FromNode(field, *node);
      absl::Status status = parsed.status();
      if (status.ok()) status = internal::CheckRules(field, *parsed);
      if (!status.ok()) return At(node->source(), Annotate(status, key));
      value = *parsed;
      source = absl::StrCat("file:", node->source().begin.line);
    }
    if (const auto it = overrides_.find(key); it != overrides_.end()) {
      used_.insert(key);
      const absl::StatusOr<ConfigScalar> parsed = internal::ParseScalar(field, it->second);
      absl::Status status = parsed.status();
      if (status.ok()) status = internal::CheckRules(field, *parsed);
      if (!status.ok()) return Annotate(Annotate(status, key), "flag");
      value = *parsed;
      source = "flag";
    }
    if (source == "default") {
      if (internal::IsRequired(field)) {
        return At(table,
                  absl::InvalidArgumentError(absl::StrCat("missing required key \"", key, "\"")));
      }
      CISTERN_ASSIGN_OR_RETURN(value, internal::DefaultOf(field));
    }
    internal::SetField(field, value, message);
    loaded_.values.push_back({key, internal::FormatScalar(field, value), std::move(source)});
    return absl::OkStatus();
  }

  bool HasOverrideUnder(const std::string& prefix) const {
    const auto it = overrides_.lower_bound(prefix);
    return it != overrides_.end() && it->first.compare(0, prefix.size(), prefix) == 0;
  }

  // Follows the dots as far as they name tables, so that the suggestion comes from the right one.
  absl::Status UnknownOverride(const std::string& key) const {
    const Descriptor* table = root_;
    size_t begin = 0;
    for (size_t dot; (dot = key.find('.', begin)) != std::string::npos; begin = dot + 1) {
      const std::string name = key.substr(begin, std::min(dot, key.find('[', begin)) - begin);
      const FieldDescriptor* field = table->FindFieldByName(name);
      if (field == nullptr || field->message_type() == nullptr) break;
      table = field->message_type();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("flag: unknown key \"", key, "\"",
                     internal::Suggest(root_, table, key.substr(0, begin), key.substr(begin))));
  }

  const std::string file_name_;
  const Descriptor* const root_;
  std::map<std::string, std::string> overrides_;
  std::set<std::string> used_;
  LoadedConfig loaded_;
};

}  // namespace

std::string LoadedConfig::ToString() const {
  size_t key_width = 0;
  size_t value_width = 0;
  for (const ConfigValue& v : values) {
    key_width = std::max(key_width, v.key.size());
    value_width = std::max(value_width, v.value.size());
  }
  std::string out;
  for (const ConfigValue& v : values) {
    absl::StrAppend(&out, v.key, std::string(key_width - v.key.size(), ' '), " = ", v.value,
                    std::string(value_width - v.value.size(), ' '), "  (", v.source, ")\n");
  }
  return out;
}

absl::StatusOr<LoadedConfig> LoadConfig(
    std::string_view toml_text, std::string_view file_name,
    const std::vector<std::pair<std::string, std::string>>& overrides, Message* message) {
  message->Clear();
  if (toml_text.size() > kMaxConfigBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(AbslView(file_name), ":1: more than ", kMaxConfigBytes, " bytes"));
  }
  const toml::parse_result parsed = toml::parse(toml_text, file_name);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return absl::InvalidArgumentError(absl::StrCat(
        AbslView(file_name), ":", error.source().begin.line, ": ", AbslView(error.description())));
  }
  return Loader(file_name, overrides, message->GetDescriptor()).Run(parsed.table(), message);
}

absl::StatusOr<LoadedConfig> LoadConfigFile(
    const std::string& path, const std::vector<std::pair<std::string, std::string>>& overrides,
    Message* message) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(errno, path);
  const absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  std::string text;
  char buffer[16 * 1024];
  while (text.size() <= kMaxConfigBytes) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path);
    if (n == 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  return LoadConfig(text, path, overrides, message);
}

}  // namespace cistern
