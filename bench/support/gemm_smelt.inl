// smelt's product for one instruction set: see gemm_smelt.hpp.

namespace smelt::bench::SMELT_SET {

template <class Element>
[[nodiscard]] product prepare(product_shape shape, std::span<const float* const> experts) {
  namespace ops = cpu_ops::SMELT_SET;
  const std::int64_t size = ops::packed_size<Element>(shape.depth, shape.cols);
  const auto panels = make_page_buffer<Element>(size * std::int64_t(experts.size()));
  for (std::size_t e = 0; e < experts.size(); ++e) {
    ops::pack_rows([&](std::int64_t k) { return experts[e] + k * shape.cols; }, shape.depth, shape.cols, 0,
                   ops::panel_count(shape.cols), panels.get() + std::int64_t(e) * size);
  }
  const auto memory = std::make_shared<cpu_ops::arena>();
  return [=](const float* x, std::size_t expert, float* y) {
    memory->reset();
    ops::multiply(ops::rows_of<Element>(*memory, x, shape.depth, shape.tokens, shape.depth),
                  ops::packed_operand<Element>{panels.get() + std::int64_t(expert) * size, shape.depth}, shape.tokens,
                  shape.depth, shape.cols, ops::overwrite(y, shape.cols));
  };
}

}  // namespace smelt::bench::SMELT_SET
