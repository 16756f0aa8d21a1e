// What the admin service answers, as text for people. Pure.
#ifndef CISTERN_TOOLS_CTL_RENDER_H_
#define CISTERN_TOOLS_CTL_RENDER_H_

#include <string>

#include "proto/admin.pb.h"

namespace cistern::ctl {

// The whole pool, with what explains it: why chunks were missed and evicted, which wire carries
// the bytes and why.
std::string RenderStats(const admin::StatsReply& reply);
std::string RenderStores(const admin::StatsReply& reply);
std::string RenderNamespaces(const admin::StatsReply& reply);
std::string RenderSegments(const admin::SegmentsReply& reply);
std::string RenderChunks(const admin::ListChunksReply& reply);
std::string RenderChunk(const admin::ChunkInfo& chunk);

}  // namespace cistern::ctl

#endif  // CISTERN_TOOLS_CTL_RENDER_H_
