// SPDX-License-Identifier: Apache-2.0
// phasor._native: the C++ client for the Python package. _client.py and _spec.py are its only
// users, and hold what programs see.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include <string>
#include <string_view>

#include "absl/synchronization/mutex.h"
#include "client/python/native/arrays.h"
#include "client/python/native/client.h"
#include "client/python/native/completions.h"
#include "client/python/native/device_memory.h"
#include "client/python/native/helpers.h"
#include "client/python/native/positions.h"
#include "client/python/native/streams.h"
#include "client/python/native/values.h"
#include "kernels/ops/key_form.h"
#include "kernels/plan/row_layout.h"
#include "kernels/spec/presets.h"
#include "kernels/spec/spec_json.h"

namespace phasor::python {
namespace {

using nb::arg;

// Takes the Python functions that the module calls. Leaks their references: see Helpers.
void Setup(nb::dict helpers, uintptr_t main_thread) {
  const auto take = [&](const char* name) { return nb::object(helpers[name]).release().ptr(); };
  TheHelpers() = {.kinds = take("kinds"),
                  .find_kind = take("find_kind"),
                  .dtypes = take("dtypes"),
                  .find_dtype = take("find_dtype"),
                  .contiguous = take("contiguous"),
                  .positions = take("positions"),
                  .finish = take("finish"),
                  .cuda_array = take("cuda_array"),
                  .torch_stream = take("torch_stream"),
                  .written = take("written"),
                  .error = take("error")};
  LearnNumpyLayout(helpers["sample"]);
  SetMainThread(main_thread);
}

Spec ParseSpec(const std::string& json) { return ValueOrRaise(SpecFromJson(json)); }

// The fingerprint of a spec. Raises what is wrong with it, also that a field is missing.
std::string FingerprintOf(const Spec& spec) { return Fingerprint(ValueOrRaise(ResolveSpec(spec))); }

// Names of the enumerators of an enum whose Name() gives "?" after the last one.
template <typename Enum>
nb::list NamesOf() {
  nb::list names;
  for (int i = 0; Name(static_cast<Enum>(i)) != "?"; ++i) {
    const std::string_view name = Name(static_cast<Enum>(i));
    names.append(nb::str(name.data(), name.size()));
  }
  return names;
}

nb::list LocalPresets() {
  nb::list presets;
  for (const Preset& preset : Presets()) presets.append(ToDict(preset));
  return presets;
}

void BindClient(nb::module_& m) {
  const auto timeout = arg("timeout").none();
  nb::class_<NativeClient>(m, "Client")
      .def(nb::init<const std::string&, nb::dict, nb::object>())
      .def("rope", &NativeClient::Rope, arg("call"), timeout)
      .def("encode", &NativeClient::Encode, arg("call"), timeout, arg("like").none())
      .def("bias", &NativeClient::Bias, arg("call"), timeout, arg("like").none())
      .def("move_keys", &NativeClient::MoveKeys, arg("call"), timeout)
      .def("rope_async", &NativeClient::RopeAsync, arg("call"), timeout, arg("completions"),
           arg("token"))
      .def("encode_async", &NativeClient::EncodeAsync, arg("call"), timeout, arg("like").none(),
           arg("completions"), arg("token"))
      .def("prepare_rope", &NativeClient::PrepareRope, arg("call"), arg("max_bytes"))
      .def("start_ropes", &NativeClient::StartRopes, arg("ropes"), timeout, arg("completions"),
           arg("token"))
      .def("rope_batch", &NativeClient::RopeBatch, arg("calls"), timeout)
      .def("encode_batch", &NativeClient::EncodeBatch, arg("calls"), arg("likes"), timeout)
      .def("rope_in_chunks", &NativeClient::RopeInChunks, arg("call"), arg("chunk_bytes"),
           arg("progress").none(), timeout)
      .def("resolve", &NativeClient::Resolve, arg("spec"), timeout)
      .def("resolve_model", &NativeClient::ResolveModel, arg("spec"), timeout)
      .def("presets", &NativeClient::Presets, timeout)
      .def("info", &NativeClient::Info, timeout)
      .def("health", &NativeClient::CheckHealth, arg("service"), timeout)
      .def("list_tables", &NativeClient::ListTables, timeout)
      .def("get_table", &NativeClient::GetTable, arg("name"), timeout)
      .def("create_table", &NativeClient::CreateTable, arg("name"), arg("values"), timeout)
      .def("delete_table", &NativeClient::DeleteTable, arg("name"), timeout)
      .def("allocate_shared", &NativeClient::AllocateShared, arg("bytes"), timeout)
      .def("register_device_memory", &NativeClient::RegisterDeviceMemory, arg("handle"),
           arg("bytes"), arg("device_uuid"), timeout);
}

void BindStreams(nb::module_& m) {
  const auto open = [](NativeStream::Of of) {
    return [of](NativeClient& client, NativeClient::Timeout timeout) {
      return new NativeStream(client, of, timeout);
    };
  };
  m.def("open_rope_stream", open(NativeStream::Of::kRope), arg("client"), arg("timeout").none(),
        nb::rv_policy::take_ownership);
  m.def("open_encode_stream", open(NativeStream::Of::kEncode), arg("client"), arg("timeout").none(),
        nb::rv_policy::take_ownership);
  nb::class_<NativeStream>(m, "Stream")
      .def("wait_to_write", &NativeStream::WaitToWrite)
      .def("write", &NativeStream::Write, arg("id"), arg("call"), arg("like").none())
      .def("read", &NativeStream::Read)
      .def("writes_done", &NativeStream::WritesDone)
      .def("finish", &NativeStream::Finish)
      .def("cancel", &NativeStream::Cancel);
}

}  // namespace

NB_MODULE(_native, m) {
  // Cached specs and clients of a program may outlive the module.
  nb::set_leak_warnings(false);
  // Debian's Abseil looks for cycles of mutexes otherwise, which takes a few per cent of a call.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  m.def("setup", &Setup);
  nb::class_<Spec>(m, "Spec");
  m.def("parse_spec", &ParseSpec);
  m.def("fingerprint", &FingerprintOf);
  m.def("presets", &LocalPresets);
  m.def("dtype_names", &NamesOf<Dtype>);
  m.def("form_names", &NamesOf<EncodeOutput>);
  m.def("bias_family_names", &NamesOf<BiasFamily>);
  m.def("key_code_names", &NamesOf<KeyCode>);
  nb::class_<PositionList>(m, "Positions");
  m.def("grid", &MakeGrid);
  m.def("ragged", &MakeRagged);
  nb::class_<NativeDeviceMemory>(m, "DeviceMemory");
  nb::class_<PreparedRope>(m, "PreparedRope");
  nb::class_<CancelToken>(m, "CancelToken").def("cancel", &CancelToken::Cancel);
  nb::class_<Completions>(m, "Completions")
      .def(nb::init<>())
      .def("fd", &Completions::fd)
      .def("drain", &Completions::Drain);
  BindClient(m);
  BindStreams(m);
  m.attr("numerics_version") = kNumericsVersion;
}

}  // namespace phasor::python
