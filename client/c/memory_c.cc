// cistern.h: buffers and layouts.
#include "base/status.h"
#include "client/c/call.h"
#include "client/c/objects.h"
#include "client/c/structs.h"
#include "client/cistern.h"

using cistern::c::BufferObject;
using cistern::c::Call;
using cistern::c::ClientObject;
using cistern::c::Find;
using cistern::c::NotNull;

namespace {

uint64_t AddBuffer(cistern::Buffer buffer) {
  auto object = std::make_shared<BufferObject>();
  object->buffer = std::move(buffer);
  return cistern::c::Add(std::move(object));
}

}  // namespace

cistern_code cistern_register_buffer(cistern_client client, const cistern_buffer_desc* desc,
                                     cistern_buffer* buffer) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(desc, "desc"));
    CISTERN_RETURN_IF_ERROR(NotNull(buffer, "buffer"));
    cistern_buffer_desc c;
    CISTERN_RETURN_IF_ERROR(cistern::c::ReadStruct(desc, &c, "desc"));
    CISTERN_RETURN_IF_ERROR(cistern::c::CheckFlags(
        c.flags, CISTERN_BUFFER_NO_READ | CISTERN_BUFFER_NO_WRITE, "desc.flags"));
    if (c.kind > CISTERN_MEMORY_DMABUF)
      return absl::InvalidArgumentError("desc.kind: no such kind");
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<ClientObject>(client.value));
    CISTERN_ASSIGN_OR_RETURN(const auto use, object->Enter());
    cistern::BufferDesc out;
    out.data = c.data;
    out.bytes = c.bytes;
    out.kind = static_cast<cistern::MemoryKind>(c.kind);
    out.device = c.device;
    out.fd = c.fd;
    out.fd_offset = c.fd_offset;
    out.remote_read = (c.flags & CISTERN_BUFFER_NO_READ) == 0;
    out.remote_write = (c.flags & CISTERN_BUFFER_NO_WRITE) == 0;
    CISTERN_ASSIGN_OR_RETURN(cistern::Buffer registered, use->RegisterBuffer(out));
    buffer->value = AddBuffer(std::move(registered));
    return absl::OkStatus();
  });
}

cistern_code cistern_allocate_buffer(cistern_client client, uint64_t bytes, cistern_buffer* buffer,
                                     void** data) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(buffer, "buffer"));
    CISTERN_RETURN_IF_ERROR(NotNull(data, "data"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<ClientObject>(client.value));
    CISTERN_ASSIGN_OR_RETURN(const auto use, object->Enter());
    CISTERN_ASSIGN_OR_RETURN(cistern::Buffer allocated, use->AllocateBuffer(bytes));
    void* const memory = allocated.data();
    buffer->value = AddBuffer(std::move(allocated));
    *data = memory;
    return absl::OkStatus();
  });
}

cistern_code cistern_buffer_free(cistern_buffer buffer) {
  // Destroying the object waits for the calls in flight.
  return Call(
      [&]() -> absl::Status { return cistern::c::Take<BufferObject>(buffer.value).status(); });
}

cistern_code cistern_register_layout(cistern_client client, const cistern_layout* layout,
                                     uint32_t* id) {
  return Call([&]() -> absl::Status {
    CISTERN_RETURN_IF_ERROR(NotNull(layout, "layout"));
    CISTERN_RETURN_IF_ERROR(NotNull(id, "id"));
    cistern_layout c;
    CISTERN_RETURN_IF_ERROR(cistern::c::ReadStruct(layout, &c, "layout"));
    CISTERN_RETURN_IF_ERROR(cistern::c::CheckBatch(c.bases, c.base_count, "layout.bases"));
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<ClientObject>(client.value));
    CISTERN_ASSIGN_OR_RETURN(const auto use, object->Enter());
    cistern::Layout out;
    out.bases.assign(c.bases, c.bases + c.base_count);
    out.unit_stride_bytes = c.unit_stride_bytes;
    out.piece_bytes = c.piece_bytes;
    out.unit_count = c.unit_count;
    CISTERN_ASSIGN_OR_RETURN(const cistern::LayoutId registered, use->RegisterLayout(out));
    *id = registered.value;
    return absl::OkStatus();
  });
}

cistern_code cistern_unregister_layout(cistern_client client, uint32_t id) {
  return Call([&]() -> absl::Status {
    CISTERN_ASSIGN_OR_RETURN(const auto object, Find<ClientObject>(client.value));
    CISTERN_ASSIGN_OR_RETURN(const auto use, object->Enter());
    return use->UnregisterLayout({id});
  });
}
