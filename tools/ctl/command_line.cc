#include "tools/ctl/command_line.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace cistern::ctl {

Option Option::Required() const { return Option(option_->required()); }
Option Option::ShowDefault() const { return Option(option_->capture_default_str()); }
Option Option::Type(const std::string& name) const { return Option(option_->type_name(name)); }
Option Option::Range(int64_t least, int64_t most) const {
  return Option(option_->check(CLI::Range(least, most)));
}
Option Option::OneOf(const std::vector<std::string>& values) const {
  return Option(option_->check(CLI::IsMember(values)));
}
bool Option::given() const { return option_->count() > 0; }

Command Command::AddCommand(const std::string& name, const std::string& help) const {
  return Command(app_->add_subcommand(name, help));
}
Option Command::AddOption(const std::string& names, std::string& value,
                          const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}
Option Command::AddOption(const std::string& names, std::vector<std::string>& value,
                          const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}
Option Command::AddOption(const std::string& names, uint16_t& value,
                          const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}
Option Command::AddOption(const std::string& names, uint32_t& value,
                          const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}
Option Command::AddOption(const std::string& names, uint64_t& value,
                          const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}
Option Command::AddOption(const std::string& names, int& value, const std::string& help) const {
  return Option(app_->add_option(names, value, help));
}
Option Command::AddFlag(const std::string& names, bool& value, const std::string& help) const {
  return Option(app_->add_flag(names, value, help));
}
void Command::Footer(const std::string& text) const { app_->footer(text); }
void Command::RequireCommands(int least, int most) const {
  app_->require_subcommand(static_cast<size_t>(least), static_cast<size_t>(most));
}
void Command::OnUse(std::function<void()> run) const { app_->callback(std::move(run)); }
bool Command::has_command() const { return !app_->get_subcommands().empty(); }

}  // namespace cistern::ctl
