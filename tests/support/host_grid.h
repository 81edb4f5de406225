// SPDX-License-Identifier: Apache-2.0
// Runs the GPU's kernels over the whole grid on the host, on tensors where they lie. There are no
// copies, so strides, views and aliases are those of the job.
#ifndef PHASOR_TESTS_SUPPORT_HOST_GRID_H_
#define PHASOR_TESTS_SUPPORT_HOST_GRID_H_

#include <map>
#include <tuple>
#include <variant>
#include <vector>

#include "kernels/backend/batch.h"
#include "kernels/cuda/items.h"
#include "kernels/cuda/key_items.h"
#include "kernels/cuda/launch_list.h"
#include "kernels/cuda/run_on_host.h"

namespace phasor::testing {

// Adds the items of one job, cut into slices of at most `most_rows` rows. Tensors are aligned to
// their elements.
// `results`: of COMPARE, of all rows.
inline void AddWhereTheyLie(const Job& job, int64_t most_rows, cuda::LaunchList& list,
                            cuda::Arena& arena, int processors = 1, std::byte* results = nullptr) {
  using namespace cuda;
  const ItemMaker maker{arena, processors};
  for (int64_t first = 0; first < RowsOf(job);) {
    const Slice slice = SliceFrom(job, first, most_rows);
    const auto rows = [&](const auto& j) {
      return RowBuffers{j.out + first * j.out_row_bytes, j.out_row_bytes,
                        j.add_to == nullptr ? nullptr : j.add_to + first * j.add_to_row_bytes,
                        j.add_to_row_bytes};
    };
    if (const auto* encode = std::get_if<EncodeJob>(&job)) {
      const RowProgram program = CompileRow(LayoutOf(*encode));
      list.Add(EncodeKernel(*encode),
               MakeEncodeItem(*encode, program, slice, rows(*encode), maker));
    } else if (const auto* lookup = std::get_if<LookupJob>(&job)) {
      list.Add(LookupKernel(*lookup), MakeLookupItem(*lookup, slice, rows(*lookup), maker));
    } else if (const auto* bias = std::get_if<BiasJob>(&job)) {
      RowBuffers buffers = rows(*bias);
      buffers.out_head_bytes = bias->out_head_bytes;
      buffers.add_to_head_bytes = bias->add_to_head_bytes;
      list.Add(BiasKernel(*bias), MakeBiasItem(*bias, slice, buffers, maker));
    } else if (const auto* move = std::get_if<MoveJob>(&job)) {
      AddKeyItems(*move, slice, results + first * ResultBytes(*move), list, maker);
    } else {
      const auto& rotary = std::get<RotaryJob>(job);
      std::map<std::tuple<Dtype, bool, size_t>, std::vector<RotaryView>> views;
      size_t number = 0;
      for (const RotaryTensor& t : rotary.tensors) {
        const int64_t b = first / rotary.tokens, token = first % rotary.tokens;
        const auto& xs = t.x_strides;
        const auto& ys = t.y_strides;
        const bool paged = t.y_offsets != nullptr;
        RotaryView view;
        view.x = t.x + b * xs.batch + token * xs.token;
        view.y = paged ? t.y : t.y + b * ys.batch + token * ys.token;
        view.heads = static_cast<int32_t>(t.heads);
        view.x_strides = {xs.batch, xs.token, xs.head};
        view.y_strides = {ys.batch, ys.token, ys.head};
        if (paged) {
          view.y_offsets =
              arena.Put(absl::MakeConstSpan(t.y_offsets + first, static_cast<size_t>(slice.count)));
        }
        view.float8 = t.float8;
        view.inv_scale = t.inv_scale;
        view.rotates = t.rotates;
        views[{t.dtype, t.float8 != Float8::kNone, number++ / kMostViews}].push_back(view);
      }
      const ResolvedSpec& spec = rotary.plan->spec;
      const HeadLanes lanes{spec.rotary_begin, spec.head_dim - spec.rotary_dim};
      for (const auto& [type, same] : views) {
        const KernelId kernel =
            RotaryKernel(rotary, slice, std::get<0>(type), lanes, same, rotary.tokens);
        list.Add(kernel, MakeRotaryItem(rotary, slice, kernel, lanes, same, rotary.tokens, maker));
      }
    }
    first += slice.count;
  }
}

// Runs jobs in as few launches as they have kernels; returns how many.
inline int RunOnHostGrid(absl::Span<const Job> jobs, int64_t most_rows = int64_t{1} << 40,
                         int processors = 1) {
  cuda::Arena count;
  cuda::LaunchList counted;
  processors = cuda::ShareOf(processors, jobs.size());
  for (const Job& job : jobs) AddWhereTheyLie(job, most_rows, counted, count, processors);
  counted.Finish(count, nullptr);
  std::vector<std::max_align_t> memory(
      static_cast<size_t>(count.used()) / sizeof(std::max_align_t) + 1);
  auto* const base = reinterpret_cast<std::byte*>(memory.data());
  cuda::Arena arena(base, count.used());
  cuda::LaunchList list;
  for (const Job& job : jobs) AddWhereTheyLie(job, most_rows, list, arena, processors);
  const std::vector<cuda::Launch> launches = list.Finish(arena, base);
  for (const cuda::Launch& launch : launches) cuda::RunOnHost(launch.kernel, launch.batch);
  return static_cast<int>(launches.size());
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_HOST_GRID_H_
