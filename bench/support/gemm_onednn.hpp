// How does oneDNN multiply? On one thread, with every expert's weights reordered beforehand to the layout it asks for.
// Of its two primitives, the inner product is 1 to 3 points of peak faster than the matmul when weights are cold, and
// as fast when they are hot.
#pragma once

#include <omp.h>

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "support/gemm_library.hpp"

namespace smelt::bench {

namespace detail {

// The memory that a product of one shape needs; oneDNN's handles are shared, its buffers are not copied.
struct onednn_product {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::inner_product_forward primitive;
  dnnl::memory x;
  dnnl::memory y;
  std::vector<dnnl::memory> weights;

  onednn_product(product_shape shape, std::span<const float* const> experts) {
    using memory = dnnl::memory;
    const memory::desc rows({shape.tokens, shape.depth}, memory::data_type::f32, memory::format_tag::ab);
    const memory::desc plain({shape.cols, shape.depth}, memory::data_type::f32, memory::format_tag::ba);
    const memory::desc any({shape.cols, shape.depth}, memory::data_type::f32, memory::format_tag::any);
    const memory::desc sums({shape.tokens, shape.cols}, memory::data_type::f32, memory::format_tag::ab);
    using dnnl::inner_product_forward;
    const inner_product_forward::desc described(dnnl::prop_kind::forward_inference, rows, any, sums);
    const inner_product_forward::primitive_desc chosen(described, engine);
    primitive = inner_product_forward(chosen);
    x = memory(rows, engine, nullptr);
    y = memory(sums, engine, nullptr);
    for (const float* expert : experts) {
      memory from(plain, engine, const_cast<float*>(expert));  // only read: oneDNN has no const buffers
      memory to(chosen.weights_desc(), engine);
      dnnl::reorder(from, to).execute(stream, from, to);
      weights.push_back(std::move(to));
    }
    stream.wait();
  }
};

}  // namespace detail

[[nodiscard]] inline gemm_library onednn_library() {
  omp_set_num_threads(1);
  const dnnl_version_t* version = dnnl_version();
  const std::string description = "oneDNN " + std::to_string(version->major) + '.' + std::to_string(version->minor) +
                                  '.' + std::to_string(version->patch) + ", weights packed beforehand";
  return {"onednn", description, [](product_shape shape, std::span<const float* const> experts) {
            const auto state = std::make_shared<detail::onednn_product>(shape, experts);
            return [state](const float* x, std::size_t expert, float* y) {
              state->x.set_data_handle(const_cast<float*>(x));  // only read
              state->y.set_data_handle(y);
              state->primitive.execute(
                  state->stream,
                  {{DNNL_ARG_SRC, state->x}, {DNNL_ARG_WEIGHTS, state->weights[expert]}, {DNNL_ARG_DST, state->y}});
            };
          }};
}

}  // namespace smelt::bench
