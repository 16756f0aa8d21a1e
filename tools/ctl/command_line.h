// What cisternctl's commands use of CLI11, without its header, which costs every file that includes
// it ten seconds of compiling. Names, defaults, checks and help are CLI11's.
#ifndef CISTERN_TOOLS_CTL_COMMAND_LINE_H_
#define CISTERN_TOOLS_CTL_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cistern::ctl {

// An option of a command. A name to copy: the command line owns what it stands for.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option Required() const;
  // Shows the value's present content as the default.
  Option ShowDefault() const;
  // What the help calls the value, such as "FILE".
  Option Type(const std::string& name) const;
  Option Range(int64_t least, int64_t most) const;
  Option OneOf(const std::vector<std::string>& values) const;
  // Once parsed: whether it was on the command line.
  bool given() const;

 private:
  CLI::Option* option_;
};

// A command, or the program itself. A name to copy, too. What options write to must live until all
// is parsed.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command AddCommand(const std::string& name, const std::string& help) const;
  Option AddOption(const std::string& names, std::string& value, const std::string& help) const;
  Option AddOption(const std::string& names, std::vector<std::string>& value,
                   const std::string& help) const;
  Option AddOption(const std::string& names, uint16_t& value, const std::string& help) const;
  Option AddOption(const std::string& names, uint32_t& value, const std::string& help) const;
  Option AddOption(const std::string& names, uint64_t& value, const std::string& help) const;
  Option AddOption(const std::string& names, int& value, const std::string& help) const;
  Option AddFlag(const std::string& names, bool& value, const std::string& help) const;
  // What follows the help.
  void Footer(const std::string& text) const;
  // How many of its commands must be named with it, and may be.
  void RequireCommands(int least, int most) const;
  // Runs it once all is parsed, if this command was named.
  void OnUse(std::function<void()> run) const;
  // Once parsed: whether one of its own commands was named.
  bool has_command() const;

 private:
  CLI::App* app_;
};

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_COMMAND_LINE_H_
