// Which types are forms, and what do they say of themselves at compile time?
#include <smelt/law/form_view.hpp>
#include <smelt/law/forms/chinchilla.hpp>
#include <smelt/law/forms/iso_depth.hpp>
#include <smelt/law/forms/joint_moe.hpp>
#include <smelt/law/forms/looped_moe.hpp>
#include <smelt/law/forms/score_sigmoid.hpp>
#include <smelt/law/forms/sparse_compute.hpp>
#include <smelt/law/forms/test_time_depth.hpp>

namespace {

using namespace smelt::law;

static_assert(ScaledForm<chinchilla> && ScaledForm<sparse_compute> && ScaledForm<iso_depth> && ScaledForm<joint_moe>);
static_assert(ScaledForm<looped_moe<linear_map>>);
static_assert(ScaledForm<looped_moe<scaled_linear_map<false>>> && ScaledForm<looped_moe<scaled_linear_map<true>>>);
static_assert(ScaledForm<looped_moe<power_map<false>>> && ScaledForm<looped_moe<power_map<true>>>);
static_assert(ScaledForm<looped_moe<bounded_map<false>>> && ScaledForm<looped_moe<bounded_map<true>>>);
static_assert(Form<test_time_depth> && !ScaledForm<test_time_depth>);
static_assert(Form<score_sigmoid<1>> && Form<score_sigmoid<-1>>);

static_assert(chinchilla::coefficients.size() == 5);
static_assert(sparse_compute::coefficients.size() == 6);
static_assert(looped_moe<linear_map>::coefficients.size() == 11);
static_assert(looped_moe<bounded_map<true>>::coefficients.size() == 14);
static_assert(looped_moe<bounded_map<true>>::coefficients.back().name == "theta");

// Loops over rows are compiled once for forms that differ in what is fixed.
static_assert(detail::FixesAnother<looped_moe<bounded_map<false>>> &&
              !detail::FixesAnother<looped_moe<bounded_map<true>>>);
static_assert(detail::FixesAnother<joint_moe> && detail::FixesAnother<score_sigmoid<1>> &&
              !detail::FixesAnother<score_sigmoid<-1>>);
static_assert(detail::SumOfPowers<chinchilla> && detail::SumOfPowers<sparse_compute> &&
              !detail::SumOfPowers<iso_depth>);
static_assert(view_of<looped_moe<power_map<true>>>().size() == 13 && view_of<chinchilla>().name == "chinchilla");

/// A form without a gradient is none.
struct without_gradient {
  static constexpr std::string_view name = "without-gradient";
  static constexpr std::array inputs{input{"x"}};
  static constexpr std::array coefficients{coefficient{"a"}};
  static constexpr response fitted = response::plain;
  static std::array<double, 1> prepare(const std::array<double, 1>& x) { return x; }
  static double evaluate(const std::array<double, 1>& p, const std::array<double, 1>& x) { return p[0] * x[0]; }
  static constexpr std::array start_levels{1};
  static std::array<double, 1> start(const data_summary<1>&, const std::array<double, 1>&) { return {0}; }
};
static_assert(!Form<without_gradient>);

}  // namespace
