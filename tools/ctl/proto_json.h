// Protobuf messages as JSON that scripts like: numbers are numbers (the standard mapping makes
// strings of 64-bit ones), every field is there but a message that is not set, names as in the
// .proto file.
#ifndef CISTERN_TOOLS_CTL_PROTO_JSON_H_
#define CISTERN_TOOLS_CTL_PROTO_JSON_H_

#include <string>

#include "google/protobuf/message.h"

namespace cistern::ctl {

// Indented by two blanks, or one line when `compact`. `bytes` fields are written as hex. With
// `only`: an object of the one field of that name.
std::string ToJson(const google::protobuf::Message& message, bool compact = false,
                   const std::string& only = "");

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_PROTO_JSON_H_
